package manager

import (
	"context"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/schema"
)

type windowServer struct {
	*grantServer
	w *window
}

// Map implements schema.DeviceMmio_Server.
func (s windowServer) Map(_ context.Context, call schema.DeviceMmio_map) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	fd, offset, err := s.w.fd()
	if err != nil {
		return err
	}
	res.SetBytes(s.w.spec.Bytes)
	res.SetOffset(offset)
	return res.SetMemory(s.descriptor(fd))
}

// descriptor returns a capability that owns one descriptor and hands it out once.
func (s *grantServer) descriptor(fd int) schema.SharedMemory {
	var held atomic.Int64
	held.Store(int64(fd))
	take := func() int { return int(held.Swap(-1)) }
	return schema.SharedMemory(s.export("SharedMemory", nil, func() (int, error) {
		if fd := take(); fd >= 0 {
			return fd, nil
		}
		return -1, gpuerr.New(gpuerr.Denied, "the descriptor was handed out already")
	}, func() {
		if fd := take(); fd >= 0 {
			unix.Close(fd)
		}
	}))
}

// Read32 implements schema.DeviceMmio_Server.
func (s windowServer) Read32(_ context.Context, call schema.DeviceMmio_read32) error {
	v, err := s.w.read(call.Args().Offset())
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetValue(v)
	return nil
}

// Write32 implements schema.DeviceMmio_Server.
func (s windowServer) Write32(_ context.Context, call schema.DeviceMmio_write32) error {
	return s.w.write(call.Args().Offset(), call.Args().Value())
}

// Ring implements schema.DeviceMmio_Server.
func (s windowServer) Ring(_ context.Context, call schema.DeviceMmio_ring) error {
	return s.w.ring(call.Args().Doorbell(), call.Args().Value())
}

type vectorServer struct {
	*grantServer
	v *vector
}

// EventFd implements schema.Interrupt_Server.
func (s vectorServer) EventFd(_ context.Context, call schema.Interrupt_eventFd) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetMemory(s.event(s.v))
}

func (s *grantServer) event(v *vector) schema.SharedMemory {
	return s.memory(func() (int, error) { return s.function.EventFD(v.index) })
}

// Mask implements schema.Interrupt_Server.
func (s vectorServer) Mask(context.Context, schema.Interrupt_mask) error {
	return s.function.SetMask(s.v.index, true)
}

// Unmask implements schema.Interrupt_Server.
func (s vectorServer) Unmask(context.Context, schema.Interrupt_unmask) error {
	return s.function.SetMask(s.v.index, false)
}

// Ack implements schema.Interrupt_Server. The vectors are edge-triggered, as MSI is, and need
// no rearming.
func (s vectorServer) Ack(context.Context, schema.Interrupt_ack) error { return nil }
