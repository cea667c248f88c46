package ddfrpc

import (
	"context"
	"slices"

	"capgpu/gpuerr"
	"capgpu/schema"
)

type windowServer struct {
	*hardware
	w window
}

func (s windowServer) Map(_ context.Context, call schema.DeviceMmio_map) error {
	if !s.w.spec.Writable {
		return gpuerr.New(gpuerr.Denied, "the window can be reached by calls only")
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetBytes(s.w.bytes)
	res.SetOffset(s.w.offset)
	return res.SetMemory(s.bars())
}

func (s windowServer) Read32(_ context.Context, call schema.DeviceMmio_read32) error {
	v, err := s.load(s.w, call.Args().Offset())
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

func (s windowServer) Write32(context.Context, schema.DeviceMmio_write32) error {
	return gpuerr.New(gpuerr.Internal, "a window that may be written has a mapping")
}

func (s windowServer) Ring(_ context.Context, call schema.DeviceMmio_ring) error {
	if !slices.Contains(s.w.spec.Doorbells, call.Args().Doorbell()) {
		return gpuerr.New(gpuerr.Internal, "the driver's side asks for what is no doorbell")
	}
	return s.store(s.w, call.Args().Doorbell(), call.Args().Value())
}

type vectorServer struct {
	*hardware
	v *eventVector
}

func (s vectorServer) EventFd(_ context.Context, call schema.Interrupt_eventFd) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetMemory(s.memory(s.v.event.DupFD))
}

func (s vectorServer) Mask(context.Context, schema.Interrupt_mask) error { return s.v.setMask(true) }

func (s vectorServer) Unmask(context.Context, schema.Interrupt_unmask) error {
	return s.v.setMask(false)
}

func (s vectorServer) Ack(context.Context, schema.Interrupt_ack) error { return nil }
