package fake

import (
	"context"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

const (
	// firstIOVA is above 4 GiB, so that an address cut to 32 bits is never valid.
	firstIOVA ddf.IOVA = 1 << 32
	// lastIOVA is what a 4-level IOMMU with 48 bits can address.
	lastIOVA ddf.IOVA = 1 << 48
	// guardBytes stay unmapped behind each range, so that a device that runs over
	// its end faults.
	guardBytes = ddf.PageBytes
)

// Pool is the fake ddf.DMAPool.
type Pool struct {
	revoked <-chan struct{}
	hooks   Hooks
	limit   uint64

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
	live map[*Buffer]struct{}
}

func newPool(limit uint64, hooks Hooks, revoked <-chan struct{}) *Pool {
	return &Pool{revoked: revoked, hooks: hooks, limit: limit, next: firstIOVA, live: map[*Buffer]struct{}{}}
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
	b, err := p.reserve(bytes)
	if err != nil {
		return nil, err
	}
	if err := b.back(p.hooks); err != nil {
		p.forget(b)
		return nil, err
	}
	if isClosed(p.revoked) { // revoked meanwhile: nobody else would free it
		return nil, joinFree(errRevoked, b)
	}
	return b, nil
}

// reserve charges the size and picks the IOVA range, both before any memory is
// made.
func (p *Pool) reserve(bytes uint64) (*Buffer, error) {
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
	if size > uint64(lastIOVA-p.next) || guardBytes > uint64(lastIOVA-p.next)-size {
		return nil, gpuerr.New(gpuerr.IO, "the IOVA space of this driver is used up; restart the driver")
	}
	p.used += size
	p.generation++
	b := &Buffer{pool: p, iova: p.next, size: size, generation: p.generation}
	p.next += ddf.IOVA(size + guardBytes)
	p.live[b] = struct{}{}
	return b, nil
}

// forget returns a buffer's charge.
func (p *Pool) forget(b *Buffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.live[b]; ok {
		delete(p.live, b)
		p.used -= b.size
	}
}

// Usage implements ddf.DMAPool.
func (p *Pool) Usage() ddf.PoolUsage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ddf.PoolUsage{UsedBytes: p.used, LimitBytes: p.limit, Entries: uint64(len(p.live))}
}

// Mapped reports whether the device can reach all of [iova, iova+bytes): what
// the function's IOMMU would say.
func (p *Pool) Mapped(iova ddf.IOVA, bytes uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := range p.live {
		if iova >= b.iova && uint64(iova-b.iova) <= b.size && bytes <= b.size-uint64(iova-b.iova) {
			return true
		}
	}
	return false
}

// buffers is a snapshot of what is live.
func (p *Pool) buffers() []*Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*Buffer, 0, len(p.live))
	for b := range p.live {
		all = append(all, b)
	}
	return all
}

func (p *Pool) scrubAll() {
	for _, b := range p.buffers() {
		b.scrubRevoked()
	}
}

func (p *Pool) freeAll() error {
	var errs []error
	left := p.buffers()
	for _, b := range left {
		if err := b.free(); err != nil {
			errs = append(errs, err)
		}
	}
	return leftBehind(len(left), errs)
}
