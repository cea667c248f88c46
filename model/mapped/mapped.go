package mapped

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// File is a mapped file.
type File struct {
	data []byte

	mu sync.Mutex
	// +checklocks:mu
	closed bool
}

// Open maps the whole of a regular, non-empty file. It returns gpuerr.IO if the
// host refuses, and gpuerr.Invalid if the file cannot be mapped.
func Open(path string) (*File, error) {
	// Without O_NONBLOCK, opening a pipe would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refused(path, err)
	}
	defer f.Close()

	size, err := regular(f)
	if err != nil {
		return nil, err
	}
	if size == 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: is empty", path)
	}

	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	runtime.KeepAlive(f)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "map %s: %v", path, err)
	}

	return &File{data: data}, nil
}

// ReadFile copies a small regular file of at most the given size. The error for a
// missing file matches os.ErrNotExist.
func ReadFile(path string, most int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refused(path, err)
	}
	defer f.Close()

	size, err := regular(f)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: has %d bytes, and more than %d are not read", path, size, most)
	}

	data := make([]byte, size)
	// A file that grows meanwhile is cut, one that shrinks is short; both are
	// accepted as read.
	n := 0
	for n < size {
		k, err := f.ReadAt(data[n:], int64(n))
		n += k
		if err != nil {
			break
		}
	}

	return data[:n], nil
}

// regular is the size of a regular file.
func regular(f *os.File) (int, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, refused(f.Name(), err)
	}
	if !st.Mode().IsRegular() {
		return 0, gpuerr.New(gpuerr.Invalid, "%s: is no regular file", f.Name())
	}
	if st.Size() < 0 || st.Size() > math.MaxInt {
		return 0, gpuerr.New(gpuerr.Invalid, "%s: has %d bytes", f.Name(), st.Size())
	}
	return int(st.Size()), nil
}

// refused is gpuerr.IO with its cause, so that os.ErrNotExist still matches.
func refused(path string, err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("%w: open %s: %w", gpuerr.IO, path, err)
}

// Bytes is the mapping. It is valid until Close; read it within Guard.
func (f *File) Bytes() []byte { return f.data }

// Close unmaps the file. Nobody may use its bytes afterwards. Closing again does
// nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	if err := unix.Munmap(f.data); err != nil {
		return gpuerr.New(gpuerr.IO, "unmap a model: %v", err)
	}
	return nil
}

// Guard runs f, which reads mapped files in this goroutine. If a file was
// truncated, f ends at the fault and Guard returns gpuerr.IO. Other panics pass
// through.
func Guard(f func() error) error {
	var err error
	if _, faulted := shm.Guard(func() { err = f() }); faulted {
		return errTruncated
	}
	return err
}

// Copy copies src, which is in a mapped file, to dst of the same length. If the
// file was truncated, the contents of dst are undefined.
func Copy(dst, src []byte) error {
	if len(dst) != len(src) {
		return gpuerr.New(gpuerr.Invalid, "copy: %d bytes to room for %d", len(src), len(dst))
	}
	if _, faulted := shm.Guard(func() { copy(dst, src) }); faulted {
		return errTruncated
	}
	return nil
}

var errTruncated = gpuerr.New(gpuerr.IO, "the mapped file of the model became shorter while it was read")
