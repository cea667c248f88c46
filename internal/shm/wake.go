package shm

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Sender is the end of a wake pipe that wakes. A pipe, not an eventfd, because
// each end has an open file description of its own: a peer that holds the other
// end cannot clear O_NONBLOCK here and make Signal block.
type Sender struct {
	p  *pollable
	mu sync.Mutex
	// +checklocks:mu
	err error
	try func(fd uintptr)
}

// Receiver is the end of a wake pipe that sleeps. Its descriptor is in the runtime's poller
// from the first Wait on: a caller that polls it itself (Take) wakes nothing of the runtime.
type Receiver struct {
	fds receiverFD

	mu sync.Mutex // one waiter at a time
	// +checklocks:mu
	err error
	// +checklocks:mu
	buf [512]byte
	// +checklocks:mu
	slept bool // the current wait or the last one slept, and its wake-up is still in the pipe
	try   func(fd uintptr) bool
	drain func(fd uintptr)

	look sync.Mutex // of Err
	// +checklocks:look
	gone error
	// +checklocks:look
	polled [1]unix.PollFd
	// +checklocks:look
	now  unix.Timespec
	seen func(fd uintptr)
}

// wakePipeBytes is asked for as a pipe's size: one page is plenty for wakes.
const wakePipeBytes = 4096

var wakeByte = []byte{1}

// NewWake makes a wake pipe.
func NewWake() (*Sender, *Receiver, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, ioError("make a wake pipe", err)
	}

	// Refused where the user's pipe pages are used up; the pipe is small then anyway.
	unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, wakePipeBytes)
	r, err := newReceiver(fds[0])
	if err != nil {
		closeFD(fds[1])
		return nil, nil, err
	}

	s, err := newSender(fds[1])
	if err != nil {
		r.Close()
		return nil, nil, err
	}

	return s, r, nil
}

// SenderFromFD takes the writing end of a pipe from a peer.
func SenderFromFD(fd int) (*Sender, error) {
	if err := checkPipe(fd, unix.O_WRONLY); err != nil {
		closeFD(fd)
		return nil, err
	}
	return newSender(fd)
}

// ReceiverFromFD takes the reading end of a pipe from a peer.
func ReceiverFromFD(fd int) (*Receiver, error) {
	if err := checkPipe(fd, unix.O_RDONLY); err != nil {
		closeFD(fd)
		return nil, err
	}
	return newReceiver(fd)
}

func checkPipe(fd, access int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return ioError("stat a wake pipe", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return gpuerr.New(gpuerr.Protocol, "descriptor is of mode %#o, not a pipe", st.Mode&unix.S_IFMT)
	}

	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return ioError("look at a wake pipe", err)
	}
	if flags&unix.O_ACCMODE != access {
		return gpuerr.New(gpuerr.Protocol, "descriptor is the wrong end of a wake pipe")
	}

	return nil
}

func newSender(fd int) (*Sender, error) {
	p, err := newPollable(fd, "wake pipe")
	if err != nil {
		return nil, err
	}
	s := &Sender{p: p}
	s.try = s.tryWriteLocked
	return s, nil
}

func newReceiver(fd int) (*Receiver, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		closeFD(fd)
		return nil, ioError("set a descriptor non-blocking", err)
	}
	r := &Receiver{fds: receiverFD{fd: fd}}
	r.try, r.drain, r.seen = r.tryLocked, r.drainLocked, r.pollLocked
	return r, nil
}

// Signal wakes the Receiver, or its next Wait. It never waits: a full pipe means
// that a wake is pending. With the other end gone it answers gpuerr.Disconnected.
func (s *Sender) Signal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = nil
	if s.p.raw.Control(s.try) != nil {
		return errEventClosed
	}
	switch s.err {
	case nil, unix.EAGAIN:
		return nil
	case unix.EPIPE:
		return errWakeGone
	}
	return ioError("signal a wake pipe", s.err)
}

// tryWriteLocked writes one byte.
//
// +checklocksignore: called through s.try, which Signal holds the lock for.
func (s *Sender) tryWriteLocked(fd uintptr) {
	for {
		if _, s.err = unix.Write(int(fd), wakeByte); s.err != unix.EINTR {
			return
		}
	}
}

// FD is the descriptor, owned by s; -1 once closed.
func (s *Sender) FD() int { return int(s.p.fd.Load()) }

// DupFD returns a close-on-exec duplicate that the caller owns.
func (s *Sender) DupFD() (int, error) { return s.p.dup() }

// Close ends the waits of the other side once no duplicate is left.
func (s *Sender) Close() error { return s.p.close() }

// Wait sleeps until it is woken; several earlier wakes count as one. When ctx ends first it
// returns ctx's error. When every Sender of the pipe is closed it answers
// gpuerr.Disconnected; a wait that slept then may be woken first.
//
// A wait that slept makes no system call once it is woken: Drain reads its wake-up, or the
// next Wait, which returns at once.
func (r *Receiver) Wait(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.slept = nil, false
	p, err := r.fds.polled()
	if err != nil {
		return err
	}
	if err := p.waitRead(ctx, r.try); err != nil {
		return err
	}
	return r.err
}

// tryLocked takes what there is, or says that the poller has something.
//
// +checklocksignore: called through r.try, which Wait holds the lock for.
func (r *Receiver) tryLocked(fd uintptr) bool {
	if r.slept {
		return true
	}
	r.slept = !r.readLocked(fd)
	return !r.slept
}

// readLocked takes what there is, if there is something, or an end.
//
// +checklocks:r.mu
func (r *Receiver) readLocked(fd uintptr) bool {
	for {
		n, err := unix.Read(int(fd), r.buf[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return false
		case err != nil:
			r.err = ioError("read a wake pipe", err)
		case n == 0:
			r.err = errWakeGone
		}
		return true
	}
}

// Drain reads the wake-up that the last Wait has left, if no goroutine waits. It is called
// before the peer is asked for another wake-up, and the peer's earlier work is looked at only
// after that.
//
// +checklocksignore: TryLock is not understood
func (r *Receiver) Drain() {
	if !r.mu.TryLock() { // a goroutine that waits has left nothing yet
		return
	}
	defer r.mu.Unlock()
	if r.slept {
		r.slept = false
		_ = r.fds.control(r.drain) // fails only when closed, as Wait will say
	}
}

// Take empties the pipe, and does not wait. It answers gpuerr.Disconnected when the pipe is
// empty and every Sender is closed, gpuerr.Closed after Close. It is for a caller that polls
// the descriptor itself: during a Wait it does nothing.
//
// +checklocksignore: TryLock is not understood
func (r *Receiver) Take() error {
	if !r.mu.TryLock() {
		return nil
	}
	defer r.mu.Unlock()
	r.err, r.slept = nil, false
	if r.fds.control(r.drain) != nil {
		return errEventClosed
	}
	return r.err
}

// drainLocked is readLocked. An end is still there for Wait.
//
// +checklocksignore: called through r.drain, which Drain holds the lock for.
func (r *Receiver) drainLocked(fd uintptr) { r.readLocked(fd) }

// Err returns the error of the next Wait, also while wakes are pending and during another
// Wait: gpuerr.Disconnected when every Sender of the pipe is closed, gpuerr.Closed after
// Close, nil else. It takes no wake and does not wait.
func (r *Receiver) Err() error {
	r.look.Lock()
	defer r.look.Unlock()
	if r.fds.control(r.seen) != nil {
		return errEventClosed
	}
	return r.gone
}

// pollLocked checks whether the other side has hung up, which poll reports without a request
// for it. It is ppoll, which the confined processes may call.
//
// +checklocksignore: called through r.seen, which Err holds the lock for.
func (r *Receiver) pollLocked(fd uintptr) {
	for {
		r.polled[0], r.now = unix.PollFd{Fd: int32(fd)}, unix.Timespec{}
		_, err := unix.Ppoll(r.polled[:], &r.now, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			r.gone = ioError("poll a wake pipe", err)
		case r.polled[0].Revents != 0:
			r.gone = errWakeGone
		default:
			r.gone = nil
		}
		return
	}
}

// FD is the descriptor, owned by r; -1 once closed.
func (r *Receiver) FD() int { return r.fds.number() }

// DupFD returns a close-on-exec duplicate that the caller owns.
func (r *Receiver) DupFD() (int, error) { return r.fds.dup() }

// Close wakes the waiter with gpuerr.Closed.
func (r *Receiver) Close() error { return r.fds.close() }

var errWakeGone = gpuerr.New(gpuerr.Disconnected, "the other end of the wake pipe is closed")
