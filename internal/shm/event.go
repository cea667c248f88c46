package shm

import (
	"context"
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// Event is an eventfd: a counter that wakes a reader when it is not zero. Use it with peers
// that do not gain from blocking this process, such as the kernel; towards others use a
// Sender.
type Event struct {
	p *pollable

	waitMu sync.Mutex // one waiter at a time
	// +checklocks:waitMu
	buf [8]byte
	// +checklocks:waitMu
	bufs [][]byte // {buf[:]}, made once
	// +checklocks:waitMu
	err error
	try func(fd uintptr) bool
}

// NewEvent makes an eventfd of value 0.
func NewEvent() (*Event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, ioError("make an eventfd", err)
	}
	return newEvent(fd)
}

func newEvent(fd int) (*Event, error) {
	p, err := newPollable(fd, "eventfd")
	if err != nil {
		return nil, err
	}
	e := &Event{p: p}
	e.bufs = [][]byte{e.buf[:]}
	e.try = e.tryReadLocked
	return e, nil
}

// Signal adds one. It never waits, unless a peer made the counter overflow and
// the descriptor blocking.
func (e *Event) Signal() error {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	var err error
	if e.p.raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), one[:]) }) != nil {
		return errEventClosed
	}
	if err != nil && err != unix.EAGAIN { // EAGAIN: full, so a wake is pending
		return ioError("signal an eventfd", err)
	}
	return nil
}

// Wait sleeps until the counter is not zero, takes it and returns it. When ctx
// ends first it returns ctx's error and leaves the counter as it is.
func (e *Event) Wait(ctx context.Context) (uint64, error) {
	e.waitMu.Lock()
	defer e.waitMu.Unlock()
	e.err = nil
	if err := e.p.waitRead(ctx, e.try); err != nil {
		return 0, err
	}
	if e.err != nil {
		return 0, ioError("read an eventfd", e.err)
	}
	return binary.NativeEndian.Uint64(e.buf[:]), nil
}

// tryReadLocked reads with RWF_NOWAIT, because a peer may have cleared O_NONBLOCK.
//
// +checklocksignore: called through e.try, which Wait holds the lock for.
func (e *Event) tryReadLocked(fd uintptr) bool {
	for {
		_, err := unix.Preadv2(int(fd), e.bufs, -1, unix.RWF_NOWAIT)
		switch err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		e.err = err
		return true
	}
}

// FD is the descriptor, owned by e; -1 once closed.
func (e *Event) FD() int { return int(e.p.fd.Load()) }

// DupFD returns a close-on-exec duplicate that the caller owns.
func (e *Event) DupFD() (int, error) { return e.p.dup() }

// Close wakes the waiter with gpuerr.Closed.
func (e *Event) Close() error { return e.p.close() }
