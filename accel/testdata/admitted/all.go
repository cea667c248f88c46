package main

import (
	"context"

	"capgpu/accel"
)

type weight uint32

func all(ctx context.Context, g *accel.GPU, k *accel.Kernel) {
	h, _ := accel.Alloc[float32, accel.Host](ctx, g, 4)
	p, _ := accel.Alloc[float32, accel.PinnedHost](ctx, g, 4)
	u, _ := accel.Alloc[float32, accel.Unified](ctx, g, 4)
	d, _ := accel.CopyToDevice(ctx, h)
	accel.Slice(h)
	accel.Slice(p)
	accel.Slice(u)

	var gpu *accel.Buffer[float32, accel.Gpu] = d
	s, _ := accel.NewStream[accel.PinnedHost](ctx, g)
	e, _ := accel.Copy(s, gpu, p)
	accel.Copy(g.Default(), p, u)
	g.Default().Wait(e)
	last, _ := g.Default().Launch(accel.Launch{Kernel: k, Args: []accel.Argument{accel.Arg(d), accel.Arg(u), accel.Value(weight(1))}})
	accel.Elapsed(e, last)

	moved, _ := accel.ToDevice(ctx, h)
	accel.ToHost(ctx, moved)
}
