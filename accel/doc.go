// Package accel is buffers, streams and launches in the terms of the Abstract Device Machine
// (docs/adm.md) and of the accelerator runtime model, on one session of package client.
//
//	gpu, err := accel.Open(ctx, conn, accel.Options{})
//	a, err := accel.Alloc[float32, accel.Unified](ctx, gpu, n)
//	values, err := accel.Slice(a)                // []float32, shared with the device
//	add, err := gpu.Kernel(ctx, "vecadd_f32")
//	err = gpu.Launch(ctx, accel.Launch{Kernel: add, Args: []accel.Argument{accel.Arg(a), accel.Arg(b), accel.Arg(c)}})
//
// # Spaces
//
// The memory space is part of a buffer's type, so that the compiler refuses what the machine
// forbids: a Slice of a Device buffer, a Host or Staging buffer as an argument of a kernel, a copy
// by a stream from or to pageable memory.
//
// # Borrows
//
// A buffer that an operation names is borrowed until a wait of this process covers the operation:
// Synchronize of its event, of its stream, or of anything that was ordered behind it by Stream.Wait
// or by the default stream. Until then Free, Slice and the transfers refuse it, also when the work
// is over: a program that forgets a wait fails each time, and not now and then. Work of another
// stream may use the buffer too if both only read it, or if the one comes after the other.
//
// # Errors
//
// Errors carry a Code, for errors.Is. The first work that fails is a device error, which is sticky:
// every later call says so, and waits as far as it waits for work that was begun. Free, Slice, Close
// and Renew go on. Renew is the way out.
//
// # Where it stands
//
// The package is a client and no more: it owns no policy, no memory and no clock. It promises and
// charges nothing that the session does not.
//
// Locks: stream.collecting before GPU.mu before Trace.mu. GPU.mu is held while
// commands are put into a ring, never while a call waits.
//
// After Close nothing is left of a GPU but the slices of buffers that were not freed.
package accel
