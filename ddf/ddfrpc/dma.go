package ddfrpc

import (
	"context"
	"errors"
	"sync"
	"time"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/schema"
)

// Pool is the manager's ddf.DMAPool.
type Pool struct {
	link   *Link
	remote schema.DMAPool
}

// Alloc implements ddf.DMAPool.
func (p *Pool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if bytes == 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "bytes is 0; ask for at least one")
	}
	leave, err := p.link.enter(ctx, p.link.asking)
	if err != nil {
		return nil, err
	}
	defer func() { time.AfterFunc(allocPace, leave) }()
	b, err := p.alloc(ctx, bytes)
	if err != nil {
		return nil, p.link.mapped(err)
	}
	return b, nil
}

// alloc asks for memory and for its descriptor in one round trip. Whatever goes
// wrong, releasing the buffer's capability makes the manager free it.
func (p *Pool) alloc(ctx context.Context, bytes uint64) (*Buffer, error) {
	ctx, done := p.link.within(ctx)
	defer done()
	f, release := p.remote.Allocate(ctx, func(args schema.DMAPool_allocate_Params) error {
		args.SetBytes(bytes)
		return nil
	})
	defer release()
	// Once only: go-capnp hangs when an unresolved answer is asked twice for the
	// same field.
	pipelined := f.Buffer()
	fm, releaseMap := pipelined.Map(ctx, nil)
	defer releaseMap()
	res, err := f.Struct()
	if err != nil {
		return nil, err
	}
	m, err := fm.Struct()
	if err != nil {
		return nil, err
	}
	fd, err := p.link.memory(m.Memory())
	if err != nil {
		return nil, err
	}
	memory, err := shm.FromFD(fd, m.Bytes())
	if err != nil {
		return nil, err
	}
	host, err := memory.Map(0, m.Bytes(), true)
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	return &Buffer{
		link: p.link, remote: res.Buffer().AddRef(),
		iova: ddf.IOVA(m.Iova()), size: m.Bytes(), generation: m.Generation(),
		memory: memory, host: host,
	}, nil
}

// Usage implements ddf.DMAPool. It is zero once the link is down.
func (p *Pool) Usage() ddf.PoolUsage {
	leave, err := p.link.enter(p.link.ctx, p.link.asking)
	if err != nil {
		return ddf.PoolUsage{}
	}
	defer leave()
	f, release := p.remote.Usage(p.link.ctx, nil)
	defer release()
	res, err := f.Struct()
	if err != nil {
		return ddf.PoolUsage{}
	}
	return ddf.PoolUsage{UsedBytes: res.UsedBytes(), LimitBytes: res.LimitBytes(), Entries: res.Entries()}
}

// Buffer is the manager's ddf.DMABuffer: its memfd and one mapping of it.
type Buffer struct {
	link       *Link
	remote     schema.DMABuffer
	iova       ddf.IOVA
	size       uint64
	generation uint64

	freeing sync.Mutex // one Free at a time, its call included; outside mu

	// mu is held for reading while memory is scrubbed and for writing while it is
	// given up.
	mu sync.RWMutex
	// +checklocks:mu
	memory *shm.Memory // nil once freed
	// +checklocks:mu
	host []byte
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

// Scrub implements ddf.DMABuffer. It is local: punching needs the descriptor only.
func (b *Buffer) Scrub(off, n uint64) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	switch {
	case b.memory == nil:
		return gpuerr.New(gpuerr.Stale, "the DMA buffer at %#x was freed", uint64(b.iova))
	case b.link.ctx.Err() != nil:
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

// Free implements ddf.DMABuffer. The manager unmaps the IOVA first; only then is
// the driver's own mapping given up. With the link down the manager has freed
// the memory already, and only the mapping is left to give up.
func (b *Buffer) Free() error {
	b.freeing.Lock()
	defer b.freeing.Unlock()
	if b.FD() < 0 {
		return nil
	}
	err := b.link.insist(func() error {
		f, release := b.remote.Free(b.link.ctx, nil)
		defer release()
		_, err := f.Struct()
		return err
	})
	if err != nil && !errors.Is(err, gpuerr.Revoked) {
		return err // still mapped by the device: keep it, so that Free can be tried again
	}
	b.remote.Release()
	b.mu.Lock()
	defer b.mu.Unlock()
	err = errors.Join(shm.Unmap(b.host), b.memory.Close())
	b.memory, b.host = nil, nil
	return err
}

var (
	_ ddf.DMAPool   = (*Pool)(nil)
	_ ddf.DMABuffer = (*Buffer)(nil)
)
