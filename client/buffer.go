package client

import (
	"context"
	"io"
	"sync"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// Buffer is device memory that is also in this process's reach. It is zero when
// it is created.
//
// It implements io.ReaderAt and io.WriterAt. Data that a program wrote is there to be
// read once the outcome of the launch has been seen; what is written before a
// Flush is there for the launch.
type Buffer struct {
	s      *Session
	handle uint64
	size   uint64
	off    uint64 // of the memory in the memfd
	device bool   // of usage Device: there is no memfd

	mu sync.RWMutex
	// +checklocks:mu
	memory *shm.Memory // nil once closed
	// +checklocks:mu
	mapped []byte
	// +checklocks:mu
	held bool // by a caller of Map
}

// CreateBuffer makes a buffer of the given size, 1 to Description.MaxBufferBytes.
// The ledger is charged the size rounded up to 4096.
func (s *Session) CreateBuffer(ctx context.Context, bytes uint64, usage Usage) (*Buffer, error) {
	m, err := s.create(ctx, control.TypeCreateBuffer, control.TypeDestroyBuffer, control.CreateBufferRequest{Bytes: bytes, Usage: uint32(usage)}.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	defer m.CloseFDs()
	r, err := control.ParseCreateBufferReply(m.Body)
	if err != nil {
		return nil, err
	}
	if usage&Device != 0 {
		if len(m.FDs) > 0 || r.MemLen < bytes {
			return nil, gpuerr.New(gpuerr.Protocol, "the service made a buffer of %d bytes with %d descriptors where one of %d without was asked for", r.MemLen, len(m.FDs), bytes)
		}
		b := &Buffer{s: s, handle: r.Handle, size: bytes, device: true}
		if err := s.adopt(b); err != nil {
			return nil, err
		}
		return b, nil
	}
	if len(m.FDs) != 1 {
		return nil, gpuerr.New(gpuerr.Protocol, "the service made a buffer without memory to map")
	}
	if r.MemLen < bytes || r.MemOff%pageBytes != 0 || r.MemOff+r.MemLen < r.MemOff {
		return nil, gpuerr.New(gpuerr.Protocol, "the service made a buffer of %d bytes at %d where %d were asked for", r.MemLen, r.MemOff, bytes)
	}
	mem, err := shm.FromFD(m.FDs[0], r.MemOff+r.MemLen)
	m.FDs = nil
	if err != nil {
		return nil, err
	}
	b := &Buffer{s: s, handle: r.Handle, size: bytes, off: r.MemOff, memory: mem}
	if err := s.adopt(b); err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// pageBytes is the granule of mappings.
const pageBytes = 4096

// Handle is the buffer's number in the session. A gpu-gate tells its Cap'n Proto
// client ids of its own instead, which are never used twice.
func (b *Buffer) Handle() uint64 { return b.handle }

// Size is the size in bytes, as it was asked for.
func (b *Buffer) Size() uint64 { return b.size }

// Memory is where the bytes lie: length bytes at offset off of the memory file
// fd, which belongs to the buffer and is open until Close; -1 after that, and of a
// buffer of usage Device. Where somebody else may close the buffer meanwhile, use
// DupMemory.
func (b *Buffer) Memory() (fd int, off, length uint64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.memory == nil {
		return -1, 0, 0
	}
	return b.memory.FD(), b.off, b.size
}

// DupMemory is Memory with a descriptor that the caller owns, which is the
// buffer's for certain: no Close can come between finding and duplicating it.
func (b *Buffer) DupMemory() (fd int, off, length uint64, err error) {
	if err := b.s.Err(); err != nil {
		return -1, 0, 0, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.memory == nil {
		return -1, 0, 0, b.hidden()
	}
	fd, err = b.memory.DupFD()
	return fd, b.off, b.size, err
}

// populateBytes is the most of a buffer that Map puts pages under: the host's memory is
// used by then, so it is no more than takes some 20 ms. The rest gets its pages
// when it is touched.
const populateBytes = 64 << 20

// Map returns the buffer's memory, Size bytes shared with the device. Later calls
// return the same slice. It is valid until Unmap, whatever happens to the buffer,
// its session or the driver meanwhile; see the package comment. Once the session has
// ended it reads as zeros: Queue.Err says whether that could be so.
//
// The first 64 MiB have their pages when Map returns: a caller that maps a buffer will touch
// it, and a page at a time that takes longer. ReadAt and WriteAt touch what they need.
func (b *Buffer) Map() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mem, err := b.mapLocked()
	if err != nil {
		return nil, err
	}
	if !b.held {
		shm.Populate(mem, populateBytes)
	}
	b.held = true
	return mem, nil
}

// +checklocks:b.mu
func (b *Buffer) mapLocked() ([]byte, error) {
	if b.memory == nil {
		return nil, b.hidden()
	}
	if b.mapped == nil {
		mem, err := b.memory.Map(b.off, b.size, true)
		if err != nil {
			return nil, err
		}
		b.mapped = mem
	}
	return b.mapped, nil
}

// hidden is why there is no memory to map.
func (b *Buffer) hidden() error {
	if b.device {
		return gpuerr.New(gpuerr.Unimplemented, "a buffer of usage device cannot be mapped, read or written; use Upload and Download, or copy through a buffer of usage upload or readback")
	}
	return b.s.gone("the buffer is closed")
}

// Unmap ends the slice that Map returned: touching it afterwards crashes the
// process. Call it when nothing uses the slice any more, before or after Close.
// Without a mapping it does nothing.
func (b *Buffer) Unmap() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = false
	return b.unmapLocked()
}

// +checklocks:b.mu
func (b *Buffer) unmapLocked() error {
	mem := b.mapped
	if mem == nil || b.held {
		return nil
	}
	b.mapped = nil
	return shm.Unmap(mem)
}

// ReadAt implements io.ReaderAt. Data that it read without an error was not scrubbed by the
// end of the session; see Queue.Err.
func (b *Buffer) ReadAt(p []byte, off int64) (int, error) {
	return b.access(p, off, func(mem []byte) int { return copy(p, mem) })
}

// WriteAt implements io.WriterAt. It writes nothing beyond Size.
func (b *Buffer) WriteAt(p []byte, off int64) (int, error) {
	n, err := b.access(p, off, func(mem []byte) int { return copy(mem, p) })
	if err == io.EOF {
		err = io.ErrShortWrite
	}
	return n, err
}

func (b *Buffer) access(p []byte, off int64, move func(mem []byte) int) (int, error) {
	if off < 0 {
		return 0, gpuerr.New(gpuerr.Invalid, "offset %d is negative", off)
	}
	if err := b.s.Err(); err != nil {
		return 0, err // the mapping may still be there, with nobody behind it
	}
	n, err := b.reach(p, off, move)
	if n > 0 {
		if over := b.s.kept(); over != nil {
			return 0, over
		}
	}
	return n, err
}

// reach has move work on the memory from off on, at most len(p) bytes.
func (b *Buffer) reach(p []byte, off int64, move func(mem []byte) int) (int, error) {
	b.mu.RLock()
	for b.mapped == nil || b.memory == nil {
		b.mu.RUnlock()
		b.mu.Lock()
		_, err := b.mapLocked()
		b.mu.Unlock()
		if err != nil {
			return 0, err
		}
		b.mu.RLock()
	}
	defer b.mu.RUnlock()
	if uint64(off) >= b.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := move(b.mapped[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close gives the memory back to the device. Work that uses it ends first, as
// revoked. A slice that Map returned stays valid; see Unmap.
func (b *Buffer) Close(ctx context.Context) error {
	if !b.s.disown(b) {
		return nil
	}
	b.release()
	return b.s.destroy(ctx, control.TypeDestroyBuffer, b.handle)
}

// release closes what this process holds of the buffer.
func (b *Buffer) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory != nil {
		b.memory.Close()
		b.memory = nil
	}
	_ = b.unmapLocked() // a failed munmap leaves the mapping, which harms nobody
}
