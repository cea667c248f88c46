package faultlog

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Path is the kernel's log. A reader needs CAP_SYSLOG, or kernel.dmesg_restrict=0.
const Path = "/dev/kmsg"

// recordBytes is room for the longest record (CONSOLE_EXT_LOG_MAX in
// kernel/printk/internal.h, Linux 6.12); a read with less fails.
const recordBytes = 8 << 10

// kmsg is the kernel's log: one read returns one record.
type kmsg struct {
	file   *os.File
	raw    syscall.RawConn
	closed atomic.Bool
}

// openKmsg begins at the end: earlier faults do not belong to this run.
func openKmsg(path string) (*kmsg, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "open the kernel's log %s: %v; IOMMU faults are read there, which needs CAP_SYSLOG", path, err)
	}

	file := os.NewFile(uintptr(fd), path)
	fail := func(verb string, err error) (*kmsg, error) {
		file.Close()
		return nil, gpuerr.New(gpuerr.IO, "%s the kernel's log %s: %v", verb, path, err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return fail("go to the end of", err)
	}
	if err := file.SetReadDeadline(time.Time{}); err != nil { // such a file would block Close
		return fail("wait for", err)
	}

	raw, err := file.SyscallConn()
	if err != nil {
		return fail("wait for", err)
	}

	return &kmsg{file: file, raw: raw}, nil
}

// read takes the next record, or returns unix.EAGAIN. It does not wait, even if the
// descriptor would block.
func (k *kmsg) read(b []byte) (n int, err error) {
	if e := k.raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), b) }); e != nil {
		return 0, k.failed(e)
	}
	return n, err
}

// wait returns when there is something to read, or ctx ends.
func (k *kmsg) wait(ctx context.Context) error {
	if err := k.file.SetReadDeadline(time.Time{}); err != nil {
		return k.failed(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = k.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := k.raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return n != 0 || (err != nil && err != unix.EINTR)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return k.failed(err)
}

// failed is err, or os.ErrClosed, for which a RawConn has errors of its own.
func (k *kmsg) failed(err error) error {
	if err != nil && k.closed.Load() {
		return os.ErrClosed
	}
	return err
}

func (k *kmsg) Close() error {
	k.closed.Store(true)
	if err := k.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
