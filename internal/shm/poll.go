package shm

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// pollable is a descriptor in the runtime's poller: waiting blocks no OS thread, and Close
// wakes the waiters.
type pollable struct {
	fd   atomic.Int64 // -1 once closed
	file *os.File
	raw  syscall.RawConn
	end  interruption
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

	// Only descriptors in the poller take a deadline.
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

	// They fail only when closed, which wakes as well.
	p.end.fire = func() { file.SetReadDeadline(time.Unix(1, 0)) }
	p.end.clear = func() { file.SetReadDeadline(time.Time{}) }
	return p, nil
}

// waitRead calls try until it returns true, sleeping while the descriptor has
// nothing to read. One caller at a time.
func (p *pollable) waitRead(ctx context.Context, try func(fd uintptr) bool) error {
	if ctx.Done() == nil {
		p.end.disarm()
		return p.readError(ctx, p.raw.Read(try))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.end.arm(ctx)
	err := p.raw.Read(try)
	if err != nil {
		p.end.disarm()
	}
	return p.readError(ctx, err)
}

func (p *pollable) readError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return ctx.Err()
	default: // closed: the other errors of a RawConn are not exported
		return errEventClosed
	}
}

// close is idempotent.
func (p *pollable) close() error {
	p.fd.Store(-1)
	p.end.close()
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
