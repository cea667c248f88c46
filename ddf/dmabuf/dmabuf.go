// Package dmabuf is the driver's side of every ddf.DMABuffer: a memfd and one mapping of it.
// Its owner decides how the IOVA is unmapped.
//
//	live ──Free──► freed
//	  └── Free, unmap failed ──► live: Free may be tried again
//
// Locks: Buffer.freeing, which serialises Free with itself and is held while Unmap
// runs, and inside it Buffer.mu, which is a leaf.
package dmabuf

import (
	"errors"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// Spec has the parts of a Buffer.
type Spec struct {
	IOVA       ddf.IOVA
	Bytes      uint64 // whole pages
	Generation uint64
	Memory     *shm.Memory // the Buffer's from New on, also when that fails
	// Pinned memory keeps its pages while the device has it mapped: punching them out
	// would leave the device with the old ones. It is scrubbed by writing zeros.
	Pinned bool
	// Ended is why the grant is over, or nil.
	Ended func() error
	// Unmap takes the memory from the device; on an error the buffer stays as it is.
	Unmap func() error
	// Freed is called after the buffer is freed; may be nil.
	Freed func()
}

// Buffer is a ddf.DMABuffer.
type Buffer struct {
	spec Spec

	freeing sync.Mutex

	// mu is held for reading while memory is used and for writing while it is given
	// up. The former take time in proportion to the buffer and block on nothing else.
	mu sync.RWMutex
	// +checklocks:mu
	memory *shm.Memory // nil once freed
	// +checklocks:mu
	host []byte
}

// New maps the memory.
func New(s Spec) (*Buffer, error) {
	host, err := s.Memory.Map(0, s.Bytes, true)
	if err != nil {
		return nil, errors.Join(err, s.Memory.Close())
	}
	return &Buffer{spec: s, memory: s.Memory, host: host}, nil
}

// IOVA implements ddf.DMABuffer.
func (b *Buffer) IOVA() ddf.IOVA { return b.spec.IOVA }

// Size implements ddf.DMABuffer.
func (b *Buffer) Size() uint64 { return b.spec.Bytes }

// Generation implements ddf.DMABuffer.
func (b *Buffer) Generation() uint64 { return b.spec.Generation }

// Bytes implements ddf.DMABuffer. It is nil after Free.
func (b *Buffer) Bytes() []byte {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.host
}

// FD implements ddf.DMABuffer. It is -1 after Free.
func (b *Buffer) FD() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.memory == nil {
		return -1
	}
	return b.memory.FD()
}

// Use runs f on the mapping, which stays until f returns. It is false when there is
// none any more.
func (b *Buffer) Use(f func(host []byte)) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.memory == nil {
		return false
	}
	f(b.host)
	return true
}

// Scrub implements ddf.DMABuffer. It is local and needs no permission.
func (b *Buffer) Scrub(off, n uint64) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.memory == nil {
		return gpuerr.New(gpuerr.Stale, "the DMA buffer at %#x was freed", uint64(b.spec.IOVA))
	}
	if err := b.spec.Ended(); err != nil {
		return err
	}

	switch size := b.spec.Bytes; {
	case off%ddf.PageBytes != 0 || n%ddf.PageBytes != 0:
		return gpuerr.New(gpuerr.Invalid, "scrub [%d, +%d): off and n must be multiples of %d", off, n, ddf.PageBytes)
	case off > size || n > size-off:
		return gpuerr.New(gpuerr.Invalid, "scrub [%d, +%d) is beyond the buffer's %d bytes", off, n, size)
	case n == 0:
		return nil
	}

	if !b.spec.Pinned {
		return b.memory.Zero(off, n)
	}

	// The pages exist, except a huge page that the host has lost: see Guard.
	piece := b.host[off : off+n]
	if _, faulted := shm.Guard(func() { clear(piece) }); faulted {
		return gpuerr.New(gpuerr.IO, "scrub [%d, +%d): the memory at %#x is gone", off, n, uint64(b.spec.IOVA))
	}

	return nil
}

// Free implements ddf.DMABuffer: the device loses the memory first, and only then is
// the driver's own mapping given up.
func (b *Buffer) Free() error {
	b.freeing.Lock()
	defer b.freeing.Unlock()
	if b.FD() < 0 {
		return nil
	}
	if err := b.spec.Unmap(); err != nil {
		return err
	}

	b.mu.Lock()
	err := errors.Join(shm.Unmap(b.host), b.memory.Close())
	b.memory, b.host = nil, nil
	b.mu.Unlock()
	if b.spec.Freed != nil {
		b.spec.Freed()
	}

	return err
}

var _ ddf.DMABuffer = (*Buffer)(nil)
