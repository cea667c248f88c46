package manager

import (
	"context"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/schema"
)

type poolServer struct{ *grantServer }

// Allocate implements schema.DMAPool_Server.
func (s poolServer) Allocate(_ context.Context, call schema.DMAPool_allocate) error {
	s.freeDropped()
	d, err := s.allocFor(s.holder, call.Args().Bytes())
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	return s.answer(d, res, err)
}

// answer puts a buffer into the results of a call. err is the error of making the results.
func (s poolServer) answer(d *dmaMemory, res interface{ SetBuffer(schema.DMABuffer) error }, err error) error {
	b := &bufferServer{grantServer: s.grantServer, d: d}
	client := s.export("DMABuffer", schema.DMABuffer_Methods(nil, b), nil, b.shutdown)
	if err != nil {
		client.Release()
		return err
	}
	return res.SetBuffer(schema.DMABuffer(client))
}

// Adopt implements schema.DMAPool_Server.
func (s poolServer) Adopt(_ context.Context, call schema.DMAPool_adopt) error {
	d, err := s.adopt(s.holder, ddf.IOVA(call.Args().Iova()), call.Args().Generation())
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	return s.answer(d, res, err)
}

// Usage implements schema.DMAPool_Server.
func (s poolServer) Usage(_ context.Context, call schema.DMAPool_usage) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	s.freeDropped()
	u := s.usage()
	res.SetUsedBytes(u.UsedBytes)
	res.SetLimitBytes(u.LimitBytes)
	res.SetEntries(u.Entries)
	return nil
}

type bufferServer struct {
	*grantServer
	d *dmaMemory

	mu sync.Mutex
	// +checklocks:mu
	freed bool
}

// shutdown runs when the driver has released the buffer, with or without a Free.
func (b *bufferServer) shutdown() { b.dropOf(b.holder, b.d) }

// Map implements schema.DMABuffer_Server.
func (b *bufferServer) Map(_ context.Context, call schema.DMABuffer_map) error {
	b.mu.Lock()
	freed := b.freed
	b.mu.Unlock()
	if freed {
		return gpuerr.New(gpuerr.Stale, "the DMA buffer at %#x was freed", uint64(b.d.iova))
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetIova(uint64(b.d.iova))
	res.SetBytes(b.d.bytes)
	res.SetGeneration(b.d.generation)
	res.SetPinned(!b.info.Fake)
	return res.SetMemory(b.memory(b.d.memory.DupFD))
}

// Free implements schema.DMABuffer_Server.
func (b *bufferServer) Free(_ context.Context, call schema.DMABuffer_free) error {
	if !b.letGo(b.holder, b.d) {
		return gpuerr.New(gpuerr.Stale, "the DMA buffer at %#x is another driver's", uint64(b.d.iova))
	}
	b.mu.Lock()
	b.freed = true
	b.mu.Unlock()
	return b.free(b.d)
}
