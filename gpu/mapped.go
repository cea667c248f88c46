package gpu

import (
	"context"
	"errors"

	"capgpu/ddf"
	"capgpu/gpu/backend"
)

// mappedPool is memory that the backend is told of: a Mapper reaches no other.
type mappedPool struct {
	ddf.DMAPool
	mapper  backend.Mapper
	context *backend.Context
}

// Alloc implements ddf.DMAPool.
func (p *mappedPool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	dma, err := p.DMAPool.Alloc(ctx, bytes)
	if err != nil {
		return nil, err
	}
	if err := p.mapper.Map(ctx, p.context, dma); err != nil {
		return nil, errors.Join(err, dma.Free())
	}
	return &mappedBuffer{DMABuffer: dma, of: p}, nil
}

// mappedBuffer is memory that the backend reaches until it is freed.
type mappedBuffer struct {
	ddf.DMABuffer
	of       *mappedPool
	unmapped bool
}

// Free implements ddf.DMABuffer.
func (b *mappedBuffer) Free() error {
	if !b.unmapped {
		if err := b.of.mapper.Unmap(b.of.context, b.DMABuffer); err != nil {
			return err
		}
		b.unmapped = true
	}
	return b.DMABuffer.Free()
}
