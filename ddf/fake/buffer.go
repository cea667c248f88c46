package fake

import (
	"errors"
	"fmt"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// Buffer is the fake ddf.DMABuffer: a sealed memfd and one mapping of it.
//
//	reserved ──back──► live ──Free──► freed
//	                     └── Free, unmap failed ──► stuck: the charge stays, Free may be tried again
type Buffer struct {
	pool       *Pool
	iova       ddf.IOVA
	size       uint64
	generation uint64

	freeing sync.Mutex // one Free at a time, hook included; outside mu

	// mu is held for reading while the memory is being scrubbed and for writing
	// while it is being freed: Free waits for a Scrub that has begun. Both take
	// time in proportion to the buffer and block on nothing else.
	mu sync.RWMutex
	// +checklocks:mu
	memory *shm.Memory // nil once freed
	// +checklocks:mu
	host []byte
}

// back makes the memory of a reserved buffer.
func (b *Buffer) back(hooks Hooks) error {
	if hooks.Alloc != nil {
		if err := hooks.Alloc(b.size); err != nil {
			return err
		}
	}
	mem, err := shm.Create(fmt.Sprintf("capgpu-dma-%x", uint64(b.iova)), b.size)
	if err != nil {
		return gpuerr.New(gpuerr.IO, "make %d bytes of DMA memory: %v", b.size, err)
	}
	host, err := mem.Map(0, b.size, true)
	if err != nil {
		return errors.Join(gpuerr.New(gpuerr.IO, "map %d bytes of DMA memory: %v", b.size, err), mem.Close())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.memory, b.host = mem, host
	return nil
}

// IOVA implements ddf.DMABuffer.
func (b *Buffer) IOVA() ddf.IOVA { return b.iova }

// Size implements ddf.DMABuffer.
func (b *Buffer) Size() uint64 { return b.size }

// Generation implements ddf.DMABuffer.
func (b *Buffer) Generation() uint64 { return b.generation }

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

// Scrub implements ddf.DMABuffer.
func (b *Buffer) Scrub(off, n uint64) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	switch {
	case b.memory == nil:
		return gpuerr.New(gpuerr.Stale, "the DMA buffer at %#x was freed", uint64(b.iova))
	case isClosed(b.pool.revoked):
		return errRevoked
	case off%ddf.PageBytes != 0 || n%ddf.PageBytes != 0:
		return gpuerr.New(gpuerr.Invalid, "scrub [%d, +%d): off and n must be multiples of %d", off, n, ddf.PageBytes)
	case off > b.size || n > b.size-off:
		return gpuerr.New(gpuerr.Invalid, "scrub [%d, +%d) is beyond the buffer's %d bytes", off, n, b.size)
	case n == 0:
		return nil
	}
	return b.memory.Punch(off, n)
}

// scrubRevoked zeroes a buffer that its driver has lost but not yet freed.
func (b *Buffer) scrubRevoked() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.memory != nil {
		// A memfd that can be truncated by nobody can be punched by its owner; if
		// not, freeing it returns the pages all the same.
		_ = b.memory.Punch(0, b.size)
	}
}

// Free implements ddf.DMABuffer. After Revoke it still releases the memory.
func (b *Buffer) Free() error { return b.free() }

func (b *Buffer) free() error {
	b.freeing.Lock()
	defer b.freeing.Unlock()
	if hook := b.pool.hooks.Free; hook != nil && b.FD() >= 0 {
		if err := hook(b.iova, b.size); err != nil {
			return fmt.Errorf("unmap IOVA %#x: %w", uint64(b.iova), err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory == nil {
		return nil
	}
	// Clients may hold descriptors of the memory, so closing ours does not return
	// the pages: only punching them out does.
	err := b.memory.Punch(0, b.size)
	err = errors.Join(err, shm.Unmap(b.host), b.memory.Close())
	b.memory, b.host = nil, nil
	b.pool.forget(b)
	return err
}

// joinFree frees b and adds what went wrong to err.
func joinFree(err error, b *Buffer) error { return errors.Join(err, b.free()) }
