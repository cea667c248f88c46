package shm

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// pollable is a descriptor in the runtime's poller: waiting blocks no OS thread,
// and Close wakes whoever waits.
type pollable struct {
	fd   atomic.Int64 // -1 once closed
	file *os.File
	raw  syscall.RawConn
	end  interruption
}

// interruption lets the end of a context end a read. It stays armed between the
// waits for one context, so that sleeping again allocates nothing.
type interruption struct {
	mu sync.Mutex
	// of is the context's Done; nil: not armed.
	// +checklocks:mu
	of <-chan struct{}
	// +checklocks:mu
	stop func() bool
	// +checklocks:mu
	done chan struct{} // closed after the deadline was set
}

// newPollable takes ownership of fd.
func newPollable(fd int, name string) (*pollable, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		closeFD(fd)
		return nil, ioError("set a descriptor non-blocking", err)
	}
	file := os.NewFile(uintptr(fd), name)
	if file == nil {
		closeFD(fd)
		return nil, gpuerr.New(gpuerr.Invalid, "descriptor %d is negative", fd)
	}
	// Only what is in the poller takes a deadline.
	if err := file.SetDeadline(time.Time{}); err != nil {
		file.Close()
		return nil, gpuerr.New(gpuerr.Protocol, "%s cannot be polled: %v", name, err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, ioError("poll "+name, err)
	}
	p := &pollable{file: file, raw: raw}
	p.fd.Store(int64(fd))
	return p, nil
}

// waitRead calls try until it returns true, sleeping while the descriptor has
// nothing to read. One caller at a time.
func (p *pollable) waitRead(ctx context.Context, try func(fd uintptr) bool) error {
	if ctx.Done() == nil {
		p.disarm()
		return p.readError(ctx, p.raw.Read(try))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.arm(ctx)
	err := p.raw.Read(try)
	if err != nil {
		p.disarm()
	}
	return p.readError(ctx, err)
}

// arm makes the end of ctx, and of no other context, interrupt reads.
func (p *pollable) arm(ctx context.Context) {
	p.end.mu.Lock()
	defer p.end.mu.Unlock()
	if p.end.of == ctx.Done() {
		return
	}
	p.disarmLocked()
	if p.fd.Load() < 0 {
		return // nobody would disarm it
	}
	done := make(chan struct{})
	p.end.of, p.end.done = ctx.Done(), done
	p.end.stop = context.AfterFunc(ctx, func() {
		p.file.SetReadDeadline(time.Unix(1, 0)) // fails only when closed, which wakes as well
		close(done)
	})
}

func (p *pollable) disarm() {
	p.end.mu.Lock()
	defer p.end.mu.Unlock()
	p.disarmLocked()
}

// +checklocks:p.end.mu
func (p *pollable) disarmLocked() {
	if p.end.of == nil {
		return
	}
	if !p.end.stop() {
		<-p.end.done
		p.file.SetReadDeadline(time.Time{})
	}
	p.end.of, p.end.stop, p.end.done = nil, nil, nil
}

func (p *pollable) readError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return ctx.Err()
	default: // closed: what else a RawConn says has no error value of its own
		return errEventClosed
	}
}

// close is idempotent.
func (p *pollable) close() error {
	p.fd.Store(-1)
	p.disarm()
	if err := p.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return ioError("close "+p.file.Name(), err)
	}
	return nil
}

// dup returns a close-on-exec duplicate that the caller owns.
func (p *pollable) dup() (int, error) {
	n, err := -1, error(errEventClosed)
	if p.raw.Control(func(fd uintptr) { n, err = dupFD(int(fd)) }) != nil {
		return -1, errEventClosed
	}
	return n, err
}

var errEventClosed = gpuerr.New(gpuerr.Closed, "event is closed")
