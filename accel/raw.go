package accel

import (
	"context"

	"capgpu/client"
)

// Codecs of contracts that have no types use what is in this file; a Go program has no need of it.

// AllocRaw makes a buffer of bytes that a kernel may see as elements of any type. With the usage
// Upload alone a kernel only reads it, with Readback alone it only writes it.
func AllocRaw(ctx context.Context, g *GPU, bytes uint64, usage client.Usage) (*Buffer[byte, Unified], error) {
	if bytes > g.limits.MaxBufferBytes {
		bytes = g.limits.MaxBufferBytes + 1 // an int, and refused all the same
	}
	m, err := g.alloc(ctx, layoutOf[byte](), int(bytes), usage)
	if err != nil {
		return nil, err
	}
	return &Buffer[byte, Unified]{memory: m}, nil
}

// RawArg is a buffer as an argument, of whatever element type the kernel takes.
func RawArg(b *Buffer[byte, Unified]) Argument { return Argument{memory: b.memory, raw: true} }

// RawRange is a part of a buffer as an argument: some bytes from an offset on.
func RawRange(b *Buffer[byte, Unified], off, bytes uint64) Argument {
	return Argument{memory: b.memory, raw: true, off: off, part: bytes}
}

// RawValue is bytes as an argument. They begin at the first inline field that no value before covers,
// and end where a field ends.
func RawValue(p []byte) Argument { return Argument{inline: p, raw: true} }

// RawCopy queues a copy of the first bytes of one buffer to another.
func RawCopy[S Space](s *Stream[S], dst, src *Buffer[byte, Unified], bytes uint64) (Event[S], error) {
	return enqueueCopy(s, dst.memory, src.memory, bytes)
}
