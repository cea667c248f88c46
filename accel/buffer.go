package accel

import (
	"context"
	"errors"
	"math/bits"

	"capgpu/client"
	"capgpu/gpuerr"
)

// Buffer is n elements of type T in a memory space. It is zero when it is made.
type Buffer[T any, S Space] struct {
	memory *memory
	host   []T // in Host
}

// memory is a buffer without its types.
type memory struct {
	g      *GPU
	layout *layout
	n      int
	shared *client.Buffer // nil in Host; in Device this process cannot map it

	// g.mu guards what follows.
	freed bool
	uses  []used
}

func (m *memory) bytes() uint64 { return uint64(m.n) * m.layout.bytes }

// Alloc makes a buffer of n elements, at least one. It fails with NotPlain where the device cannot
// have elements like T, and with OutOfMemory.
func Alloc[T any, S Space](ctx context.Context, g *GPU, n int) (*Buffer[T, S], error) {
	var s S
	usage := client.Storage
	switch any(s).(type) {
	case Host:
		usage = 0
	case Staging:
		usage = client.Upload | client.Readback
	case Device:
		usage = client.Device
	}
	m, err := g.alloc(ctx, layoutOf[T](), n, usage)
	if err != nil {
		return nil, err
	}
	b := &Buffer[T, S]{memory: m}
	if usage == 0 {
		b.host = make([]T, n)
	}
	return b, nil
}

// alloc makes memory; without a usage it is none of the device's.
func (g *GPU) alloc(ctx context.Context, l *layout, n int, usage client.Usage) (*memory, error) {
	const op = "Alloc"
	if err := g.check(op); err != nil {
		return nil, err
	}
	if l.err != nil {
		return nil, l.err
	}
	if n < 1 {
		return nil, refuse(EnqueueFailed, op, "%d elements; a buffer has at least one", n)
	}
	over, size := bits.Mul64(uint64(n), l.bytes)
	if over != 0 || size > g.limits.MaxBufferBytes {
		return nil, &Error{Code: OutOfMemory, Op: op, Err: gpuerr.Refused("deviceMemory", size, g.limits.MaxBufferBytes)}
	}

	m := &memory{g: g, layout: l, n: n}
	if usage == 0 {
		return m, nil
	}
	var err error
	if m.shared, err = g.session.CreateBuffer(ctx, size, usage); err != nil {
		code := DeviceUnavailable
		if errors.Is(err, gpuerr.Quota) || errors.Is(err, gpuerr.IO) {
			code = OutOfMemory
		}
		return nil, g.wrap(ctx, code, op, err)
	}
	return m, nil
}

// Len is the number of elements.
func (b *Buffer[T, S]) Len() int { return b.memory.n }

// Free gives the memory back; a slice of it must not be touched afterwards. A buffer that is
// borrowed is not freed, unless its GPU is closed or gone.
func (b *Buffer[T, S]) Free(ctx context.Context) error {
	m := b.memory
	m.g.mu.Lock()
	err := m.idleLocked("Free")
	if err != nil && !m.freed && (m.g.closed || m.g.session.Err() != nil) {
		err = nil
	}
	if err == nil {
		m.freed = true
	}
	m.g.mu.Unlock()
	if err != nil {
		return err
	}

	b.host = nil
	return m.release(ctx)
}

// release gives the memory back after freed was set.
func (m *memory) release(ctx context.Context) error {
	if m.shared == nil {
		return nil
	}
	err := m.shared.Close(ctx)
	if unmapped := m.shared.Unmap(); err == nil {
		err = unmapped
	}
	if err != nil {
		return wrap(DeviceUnavailable, "Free", err)
	}
	return nil
}

// Slice is the elements themselves, which the device shares unless the buffer is in Host. It is
// valid until Free, also after the GPU was closed or lost: then it may read as zeros. Between a launch
// and the wait that ends its borrow the device has the elements: a slice from before must be left
// alone.
func Slice[T any, S HostSide](b *Buffer[T, S]) ([]T, error) {
	m := b.memory
	m.g.mu.Lock()
	err := m.idleLocked("Slice")
	m.g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if m.shared == nil {
		return b.host, nil
	}

	mem, err := m.shared.Map()
	if err != nil {
		return nil, wrap(DeviceUnavailable, "Slice", err)
	}
	return elements[T](mem, m.n), nil
}

// idleLocked refuses a buffer that was freed or is borrowed.
//
// +checklocks:m.g.mu
func (m *memory) idleLocked(op string) error {
	if m.freed {
		return refuse(Freed, op, "the buffer was freed, or consumed by a transfer")
	}
	m.forgetLocked(m.g.host)
	if len(m.uses) > 0 {
		return refuse(BorrowActive, op, "work that uses the buffer was not waited for: synchronize its event or its stream")
	}
	return nil
}
