package shm

import (
	"context"
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// Interrupt is an eventfd that the kernel or the device-manager counts up, and that only this
// process reads. A goroutine that waits sleeps in read(2), with a thread of its own: the
// runtime's poller takes several times as long to wake it. To wake it, this process itself
// counts up, and notes that, so that Wait can subtract it.
type Interrupt struct {
	end interruption

	waitMu sync.Mutex // one waiter at a time; taken before mu
	// +checklocks:waitMu
	buf [8]byte

	mu sync.Mutex // never held while sleeping
	// +checklocks:mu
	fd int // -1 once closed
	// +checklocks:mu
	closing bool
	// own is how much of the counter is our own doing.
	// +checklocks:mu
	own uint64
}

// InterruptFromManager takes an eventfd from a peer that is trusted to send one, and
// not to make its counter overflow, by a process that cannot look it up in /proc. The
// descriptor's O_NONBLOCK, which both share, is cleared.
func InterruptFromManager(fd int) (*Interrupt, error) {
	if err := unix.SetNonblock(fd, false); err != nil {
		closeFD(fd)
		return nil, ioError("make a descriptor block", err)
	}
	e := &Interrupt{fd: fd}
	e.end.fire, e.end.clear = e.nudge, func() {}
	return e, nil
}

// nudge wakes the waiter, or the next one.
func (e *Interrupt) nudge() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd < 0 {
		return
	}

	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	for {
		_, err := unix.Write(e.fd, one[:])
		switch err {
		case unix.EINTR:
			continue
		case nil:
			e.own++
		}
		return // otherwise it is full, and no thread sleeps
	}
}

// Wait sleeps until the counter is not zero, takes it and returns it. When ctx
// ends first it returns ctx's error and leaves the counter as it is.
func (e *Interrupt) Wait(ctx context.Context) (uint64, error) {
	e.waitMu.Lock()
	defer e.waitMu.Unlock()
	e.end.arm(ctx)
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		// The descriptor is closed when no goroutine waits any more.
		e.mu.Lock()
		fd, closing := e.fd, e.closing
		e.mu.Unlock()
		if closing {
			return 0, errEventClosed
		}
		n, err := e.takeLocked(fd)
		if err != nil || n > 0 {
			return n, err
		}
	}
}

// takeLocked sleeps in the kernel. It may return zero if this process woke it.
//
// +checklocks:e.waitMu
func (e *Interrupt) takeLocked(fd int) (uint64, error) {
	_, err := unix.Read(fd, e.buf[:])
	switch err {
	case nil:
	case unix.EINTR:
		return 0, nil
	case unix.EAGAIN: // a peer changed the flags that we share
		if err := unix.SetNonblock(fd, false); err != nil {
			return 0, ioError("make a descriptor block", err)
		}
		return 0, nil
	default:
		return 0, ioError("read an eventfd", err)
	}

	n := binary.NativeEndian.Uint64(e.buf[:])

	// A nudge that came after the read is subtracted here and left in the counter: in the end
	// every count of the peer is returned.
	e.mu.Lock()
	defer e.mu.Unlock()
	own := min(e.own, n)
	e.own -= own
	return n - own, nil
}

// Close wakes the waiter with gpuerr.Closed.
func (e *Interrupt) Close() error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return nil
	}

	e.closing = true
	e.mu.Unlock()
	e.end.close()
	e.nudge()
	e.waitMu.Lock()
	defer e.waitMu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	fd := e.fd
	e.fd = -1
	if err := unix.Close(fd); err != nil {
		return ioError("close an eventfd", err)
	}

	return nil
}
