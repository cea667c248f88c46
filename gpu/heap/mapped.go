package heap

import (
	"context"
	"errors"

	"capgpu/ddf"
	"capgpu/gpu/backend"
)

// Mapped is a pool of memory that the backend is told of: a Mapper reaches no other.
type Mapped struct {
	ddf.DMAPool
	Mapper  backend.Mapper
	Context *backend.Context
}

// Alloc implements ddf.DMAPool.
func (p *Mapped) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	dma, err := p.DMAPool.Alloc(ctx, bytes)
	if err != nil {
		return nil, err
	}
	if err := p.Mapper.Map(ctx, p.Context, dma); err != nil {
		return nil, errors.Join(err, dma.Free())
	}
	return &mappedBuffer{DMABuffer: dma, of: p}, nil
}

// mappedBuffer is memory that the backend reaches until it is freed.
type mappedBuffer struct {
	ddf.DMABuffer
	of       *Mapped
	unmapped bool
}

// Free implements ddf.DMABuffer.
func (b *mappedBuffer) Free() error {
	if !b.unmapped {
		if err := b.of.Mapper.Unmap(b.of.Context, b.DMABuffer); err != nil {
			return err
		}
		b.unmapped = true
	}
	return b.DMABuffer.Free()
}
