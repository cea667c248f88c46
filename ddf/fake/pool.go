package fake

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"capgpu/ddf"
	"capgpu/ddf/dmabuf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

const (
	// firstIOVA is above 4 GiB, so that an address cut to 32 bits is never valid.
	firstIOVA ddf.IOVA = 1 << 32
	// lowestIOVA is where a device begins that does not reach so far.
	lowestIOVA ddf.IOVA = 1 << 20
	// maxDMABits are the address bits of a 4-level IOMMU.
	maxDMABits = 48
	// guardBytes stay unmapped behind each range, so that a device that runs over
	// its end faults.
	guardBytes = ddf.PageBytes
)

// Pool is the fake ddf.DMAPool.
type Pool struct {
	revoked <-chan struct{}
	hooks   Hooks
	limit   uint64
	end     ddf.IOVA // of the device's address space
	pinned  bool

	mu sync.Mutex
	// +checklocks:mu
	used uint64
	// next is where the next range starts. It only grows: an IOVA is never used
	// twice, so a stale one faults instead of hitting another's memory.
	// +checklocks:mu
	next ddf.IOVA
	// +checklocks:mu
	generation uint64
	// +checklocks:mu
	live map[ddf.IOVA]*piece
}

// piece is one range of the pool, charged.
//
//	reserved ──back──► live ──Free──► gone
//	                     └── Free, unmap failed ──► live: the charge stays
type piece struct {
	iova       ddf.IOVA
	size       uint64
	generation uint64
	memory     *shm.Memory    // the buffer's; nil while reserved
	buffer     *dmabuf.Buffer // nil while reserved
}

func newPool(o Options, revoked <-chan struct{}) *Pool {
	p := &Pool{revoked: revoked, hooks: o.Hooks, limit: o.LimitBytes, end: 1 << o.DMABits, pinned: o.Pinned, next: firstIOVA, live: map[ddf.IOVA]*piece{}}
	if p.end <= firstIOVA {
		p.next = lowestIOVA
	}
	return p
}

// Alloc implements ddf.DMAPool.
func (p *Pool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	if isClosed(p.revoked) {
		return nil, errRevoked
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if bytes == 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "bytes is 0; ask for at least one")
	}

	r, err := p.reserve(bytes)
	if err != nil {
		return nil, err
	}

	b, err := p.back(r)
	if err != nil {
		p.forget(r)
		return nil, err
	}

	if isClosed(p.revoked) { // revoked meanwhile: no other code would free it
		return nil, errors.Join(errRevoked, b.Free())
	}

	return b, nil
}

// reserve charges the size and picks the IOVA range, both before any memory is
// made.
func (p *Pool) reserve(bytes uint64) (*piece, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	available := uint64(0)
	if p.used < p.limit {
		available = p.limit - p.used
	}

	size, ok := roundUp(bytes)
	if !ok || size > available {
		return nil, gpuerr.Refused("deviceMemory", max(size, bytes), available)
	}
	if size > uint64(p.end-p.next) || guardBytes > uint64(p.end-p.next)-size {
		return nil, gpuerr.New(gpuerr.IO, "the IOVA space of this driver is used up; restart the driver")
	}

	p.used += size
	p.generation++
	r := &piece{iova: p.next, size: size, generation: p.generation}
	p.next += ddf.IOVA(size + guardBytes)
	p.live[r.iova] = r
	return r, nil
}

// back makes the memory of a reserved range.
func (p *Pool) back(r *piece) (*dmabuf.Buffer, error) {
	if p.hooks.Alloc != nil {
		if err := p.hooks.Alloc(r.size); err != nil {
			return nil, err
		}
	}

	memory, err := shm.Create(fmt.Sprintf("capgpu-dma-%x", uint64(r.iova)), r.size)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "make %d bytes of DMA memory: %v", r.size, err)
	}

	b, err := dmabuf.New(dmabuf.Spec{
		IOVA: r.iova, Bytes: r.size, Generation: r.generation, Memory: memory, Pinned: p.pinned,
		Ended: func() error {
			if isClosed(p.revoked) {
				return errRevoked
			}
			return nil
		},
		Unmap: func() error { return p.unmap(r, memory) },
		Freed: func() { p.forget(r) },
	})
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "map %d bytes of DMA memory: %v", r.size, err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	r.memory, r.buffer = memory, b
	return b, nil
}

// unmap takes memory from the device, then scrubs it: clients may hold descriptors of
// it, so that closing ours does not return the pages, only punching them out does.
func (p *Pool) unmap(r *piece, memory *shm.Memory) error {
	if hook := p.hooks.Free; hook != nil {
		if err := hook(r.iova, r.size); err != nil {
			return fmt.Errorf("unmap IOVA %#x: %w", uint64(r.iova), err)
		}
	}
	p.mu.Lock()
	r.buffer = nil
	p.mu.Unlock()
	return memory.Punch(0, r.size)
}

// forget returns the charge of a range.
func (p *Pool) forget(r *piece) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.live[r.iova]; ok {
		delete(p.live, r.iova)
		p.used -= r.size
	}
}

// Usage implements ddf.DMAPool.
func (p *Pool) Usage() ddf.PoolUsage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ddf.PoolUsage{UsedBytes: p.used, LimitBytes: p.limit, Entries: uint64(len(p.live))}
}

// Mapped reports whether the device can reach all of [iova, iova+bytes), as the function's
// IOMMU would.
func (p *Pool) Mapped(iova ddf.IOVA, bytes uint64) bool { return p.find(iova, bytes) != nil }

// find returns the buffer that has all of a range, if the device reaches it.
func (p *Pool) find(iova ddf.IOVA, bytes uint64) *dmabuf.Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.live {
		if r.buffer != nil && iova >= r.iova && uint64(iova-r.iova) <= r.size && bytes <= r.size-uint64(iova-r.iova) {
			return r.buffer
		}
	}
	return nil
}

// DMA is the device reaching for memory. f gets all of [iova, iova+bytes), which stays
// until it returns; where not all of it is mapped it is not called, and DMA is false:
// an IOMMU fault.
func (p *Pool) DMA(iova ddf.IOVA, bytes uint64, f func(memory []byte)) bool {
	b := p.find(iova, bytes)
	if b == nil {
		return false
	}
	off := uint64(iova - b.IOVA())
	return b.Use(func(host []byte) { f(host[off : off+bytes : off+bytes]) })
}

// pieces returns a snapshot of the live memory.
func (p *Pool) pieces() []piece {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]piece, 0, len(p.live))
	for _, r := range p.live {
		all = append(all, *r)
	}
	return all
}

// scrubAll zeroes memory that the driver has lost but not yet freed.
func (p *Pool) scrubAll() {
	for _, r := range p.pieces() {
		if r.memory != nil {
			// The owner can punch a memfd that no process can truncate; otherwise freeing it
			// returns the pages all the same.
			_ = r.memory.Punch(0, r.size)
		}
	}
}

func (p *Pool) freeAll() error {
	var errs []error
	left := 0
	for _, r := range p.pieces() {
		if r.buffer != nil {
			left++
			errs = append(errs, r.buffer.Free())
		}
	}
	return leftBehind(left, errs)
}
