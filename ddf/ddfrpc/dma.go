package ddfrpc

import (
	"context"
	"errors"
	"time"

	"capgpu/ddf"
	"capgpu/ddf/dmabuf"
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

// alloc asks for memory and for its descriptor in one round trip. After any error, releasing
// the buffer's capability makes the manager free it.
func (p *Pool) alloc(ctx context.Context, bytes uint64) (*dmabuf.Buffer, error) {
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
	return p.received(func() (schema.DMABuffer, error) {
		res, err := f.Struct()
		if err != nil {
			return schema.DMABuffer{}, err
		}
		return res.Buffer(), nil
	}, fm)
}

// newBuffer makes a buffer of memory that the manager has mapped for the device. It
// owns remote, and the memory in s.
func (l *Link) newBuffer(remote schema.DMABuffer, s dmabuf.Spec) (*dmabuf.Buffer, error) {
	s.Ended = l.ended
	s.Unmap = func() error { return l.freeRemote(remote) }
	s.Freed = remote.Release
	b, err := dmabuf.New(s)
	if err != nil {
		remote.Release()
		return nil, err
	}
	return b, nil
}

// freeRemote has the manager unmap the IOVA. With the link down it has freed the
// memory already.
func (l *Link) freeRemote(remote schema.DMABuffer) error {
	err := l.insist(func() error {
		f, release := remote.Free(l.ctx, nil)
		defer release()
		_, err := f.Struct()
		return err
	})
	if errors.Is(err, gpuerr.Revoked) {
		return nil
	}
	return err
}

// ended is errRevoked once the link is down.
func (l *Link) ended() error {
	if l.ctx.Err() != nil {
		return errRevoked
	}
	return nil
}

// Adopt returns the driver's side of memory that the manager has lent to an earlier driver
// of this epoch. A Free of it fails until the manager has committed the upgrade.
func (p *Pool) Adopt(ctx context.Context, iova ddf.IOVA, generation uint64) (ddf.DMABuffer, error) {
	leave, err := p.link.enter(ctx, p.link.asking)
	if err != nil {
		return nil, err
	}

	defer leave()
	ctx, done := p.link.within(ctx)
	defer done()
	f, release := p.remote.Adopt(ctx, func(args schema.DMAPool_adopt_Params) error {
		args.SetIova(uint64(iova))
		args.SetGeneration(generation)
		return nil
	})
	defer release()
	pipelined := f.Buffer()
	fm, releaseMap := pipelined.Map(ctx, nil)
	defer releaseMap()
	b, err := p.received(func() (schema.DMABuffer, error) {
		res, err := f.Struct()
		if err != nil {
			return schema.DMABuffer{}, err
		}
		return res.Buffer(), nil
	}, fm)
	if err != nil {
		return nil, p.link.mapped(err)
	}

	return b, nil
}

// received makes a buffer of the answer that names it and of that to its map.
func (p *Pool) received(buffer func() (schema.DMABuffer, error), fm schema.DMABuffer_map_Results_Future) (*dmabuf.Buffer, error) {
	remote, err := buffer()
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

	return p.link.newBuffer(remote.AddRef(), dmabuf.Spec{
		IOVA: ddf.IOVA(m.Iova()), Bytes: m.Bytes(), Generation: m.Generation(), Memory: memory, Pinned: m.Pinned(),
	})
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

var _ ddf.DMAPool = (*Pool)(nil)
