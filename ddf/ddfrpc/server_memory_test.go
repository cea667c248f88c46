package ddfrpc

import (
	"context"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

type poolServer struct{ *hardware }

func (s poolServer) Allocate(ctx context.Context, call schema.DMAPool_allocate) error {
	b, err := s.fn.Grants().DMA.Alloc(ctx, call.Args().Bytes())
	if err != nil {
		return err
	}
	free := func() { _ = b.Free() }
	client := rpcguard.Export(rpcguard.Spec{Name: "DMABuffer", Gate: s.gate, Methods: schema.DMABuffer_Methods(nil, bufferServer{s.hardware, b}), Shutdown: free})
	res, err := call.AllocResults()
	if err != nil {
		client.Release()
		return err
	}
	return res.SetBuffer(schema.DMABuffer(client))
}

func (poolServer) Adopt(context.Context, schema.DMAPool_adopt) error {
	return gpuerr.New(gpuerr.Unimplemented, "there is no earlier driver")
}

func (s poolServer) Usage(_ context.Context, call schema.DMAPool_usage) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	u := s.fn.Pool().Usage()
	res.SetUsedBytes(u.UsedBytes)
	res.SetLimitBytes(u.LimitBytes)
	res.SetEntries(u.Entries)
	return nil
}

type bufferServer struct {
	*hardware
	b ddf.DMABuffer
}

func (s bufferServer) Map(_ context.Context, call schema.DMABuffer_map) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetIova(uint64(s.b.IOVA()))
	res.SetBytes(s.b.Size())
	res.SetGeneration(s.b.Generation())
	res.SetPinned(true)
	return res.SetMemory(s.memory(func() (int, error) { return unix.FcntlInt(uintptr(s.b.FD()), unix.F_DUPFD_CLOEXEC, 0) }))
}

func (s bufferServer) Free(context.Context, schema.DMABuffer_free) error { return s.b.Free() }
