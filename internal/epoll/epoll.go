// Package epoll is a sleep of one goroutine on many descriptors: an epoll(7) instance with
// a pipe by which other goroutines end the sleep, and a timer for times of less than the
// whole milliseconds in which epoll_pwait(2) counts.
//
// The calling thread blocks in the kernel, so a wake reaches the goroutine without the
// runtime's poller and another goroutine between. It is for a goroutine that is
// woken for each piece of its work; everything else waits in the runtime's poller (package shm).
//
// Wake may be called from any goroutine until Close, everything else by one.
package epoll

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Set is descriptors to sleep on. Make it with New.
type Set struct {
	fd      int
	timer   int
	pipe    [2]int // read, write
	events  []unix.EpollEvent
	tags    []uint32 // of the last Wait
	setting unix.ItimerSpec
	bytes   [64]byte
}

// Tags of what is not the caller's.
const (
	tagWake  = ^uint32(0)
	tagTimer = ^uint32(0) - 1

	// MaxTag is the largest of the caller's tags.
	MaxTag = ^uint32(0) - 2
)

// maxEvents is how many descriptors one Wait reports: the others are reported by the next.
const maxEvents = 128

var wakeByte = []byte{1}

// New makes a Set without descriptors.
func New() (_ *Set, err error) {
	s := &Set{fd: -1, timer: -1, pipe: [2]int{-1, -1}, events: make([]unix.EpollEvent, maxEvents)}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make an epoll instance: %w", err)
	}
	if s.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	if err = unix.Pipe2(s.pipe[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	if err = s.Add(s.pipe[0], tagWake); err != nil {
		return nil, err
	}
	return s, s.Add(s.timer, tagTimer)
}

// Add has Wait report the tag each time that a descriptor becomes readable, or is hung up:
// once for each time, so that the caller reads it empty. The descriptor stays the caller's;
// when its last duplicate is closed it is in no Set any more.
func (s *Set) Add(fd int, tag uint32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(tag)}
	if err := unix.EpollCtl(s.fd, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch descriptor %d: %w", fd, err)
	}
	return nil
}

// Remove ends Add. Its tag may still be among those that the last Wait has reported.
func (s *Set) Remove(fd int) { _ = unix.EpollCtl(s.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// Wait sleeps for at most d, below 0: for as long as it takes, and 0: not at all, until a
// descriptor is ready or Wake is called. The tags that it returns are good until the next
// Wait.
func (s *Set) Wait(d time.Duration) []uint32 {
	millis := -1
	switch {
	case d == 0:
		millis = 0
	case d > 0:
		// The timer is exact; the timeout is for a timer that could not be set.
		s.setting.Value = unix.NsecToTimespec(int64(d))
		_ = unix.TimerfdSettime(s.timer, 0, &s.setting, nil)
		millis = int(min(d/time.Millisecond, time.Hour/time.Millisecond)) + 2
	}
	s.tags = s.tags[:0]
	for _, event := range s.events[:wait(s.fd, s.events, millis)] {
		switch tag := uint32(event.Fd); tag {
		case tagWake:
			s.drain(s.pipe[0])
		case tagTimer:
			s.drain(s.timer) // nothing is there if it was set again
		default:
			s.tags = append(s.tags, tag)
		}
	}
	return s.tags
}

func (s *Set) drain(fd int) { _, _ = unix.Read(fd, s.bytes[:]) }

// Wake ends a Wait that goes on, or the next one.
func (s *Set) Wake() { _, _ = unix.Write(s.pipe[1], wakeByte) } // a full pipe has a wake in it

// Close releases everything but the descriptors that were added.
func (s *Set) Close() {
	for _, fd := range []*int{&s.fd, &s.timer, &s.pipe[0], &s.pipe[1]} {
		if *fd >= 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
}
