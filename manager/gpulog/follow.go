package gpulog

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Path is the kernel's log. A reader needs CAP_SYSLOG, or kernel.dmesg_restrict=0.
const Path = "/dev/kmsg"

// recordBytes is room for the longest record (CONSOLE_EXT_LOG_MAX in
// kernel/printk/internal.h, Linux 6.12); a read with less fails.
const recordBytes = 8 << 10

// Follower reads the kernel's log from where it ends now.
type Follower struct {
	file    *os.File
	running sync.WaitGroup
}

// Follow calls sink for each event, one after the other, until Close.
func Follow(path string, sink func(Event)) (*Follower, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "open the kernel's log %s: %v; errors of GPUs are read there, which needs CAP_SYSLOG", path, err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, unix.ESPIPE) { // a pipe has no earlier records
		file.Close()
		return nil, gpuerr.New(gpuerr.IO, "go to the end of the kernel's log %s: %v", path, err)
	}
	f := &Follower{file: file}
	f.running.Go(func() { f.runFollow(sink) })
	return f, nil
}

func (f *Follower) runFollow(sink func(Event)) {
	b := make([]byte, recordBytes)
	for {
		n, err := f.file.Read(b) // one record
		switch {
		case errors.Is(err, unix.EPIPE): // some were overwritten before they were read
			continue
		case err != nil:
			return
		}
		if e, ok := ParseRecord(b[:n]); ok {
			sink(e)
		}
	}
}

// Close returns when sink is not called any more. On nil it does nothing.
func (f *Follower) Close() error {
	if f == nil {
		return nil
	}
	err := f.file.Close()
	f.running.Wait()
	return err
}
