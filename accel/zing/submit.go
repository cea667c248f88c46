package zing

import (
	"context"
	"errors"
	"slices"
	"time"

	"capgpu/accel"
	"capgpu/client"
)

// A submission is work of the device's one queue.
type submission struct {
	d     *device
	event accel.Event[accel.Device]
	ended bool
	err   error
}

// wait waits for the work, and for all before it.
func (s *submission) wait() error {
	if s.ended {
		return s.err
	}
	for _, before := range s.d.queue[:slices.Index(s.d.queue, s)+1] {
		before.err, before.ended = before.event.Synchronize(s.d.h.ctx), true
	}
	s.d.queue = s.d.queue[slices.Index(s.d.queue, s)+1:]
	return s.err
}

func (h *Host) submit(backend string, r *reader) (stream, error) {
	id, moduleID, kernelID := r.str(), r.bytes(), r.bytes()
	var dims [6]uint32
	for i := range dims {
		dims[i] = r.h4()
	}
	shared, count := r.h4(), r.h4()
	if uint64(len(moduleID))+uint64(len(kernelID)) > uint64(h.limits.MaxNames) || count > h.limits.MaxArgs || shared > h.limits.MaxShared {
		return nil, badParams("module_id and kernel_id, arg_count or shared_mem_bytes are beyond what CAPS_DESCRIBE tells")
	}
	type arg struct {
		inline []byte
		handle int32
		isRef  bool
	}
	args := make([]arg, 0, count)
	for range count {
		kind, reserved, flags, size := r.h1(), r.h1(), r.h2(), r.h4()
		if reserved != 0 || flags != 0 || kind == 1 && size > h.limits.MaxInline || kind == 2 && size != 4 || kind != 1 && kind != 2 {
			return nil, badParams("an argument is inline bytes (1, at most %d) or a buffer's handle (2, of 4)", h.limits.MaxInline)
		}
		if kind == 1 {
			args = append(args, arg{inline: r.take(uint64(size))})
		} else {
			args = append(args, arg{handle: int32(r.h4()), isRef: true})
		}
	}
	budget := r.h4()
	if err := r.end(); err != nil {
		return nil, err
	}
	if slices.Contains(dims[:], 0) {
		return nil, badParams("a dimension of grid or block is 0")
	}

	d, err := h.device(backend, id)
	if err != nil {
		return nil, err
	}
	kernel, err := h.kernel(d, string(moduleID), string(kernelID))
	if err != nil {
		return nil, err
	}
	launch := accel.Launch{Kernel: kernel, Grid: [3]uint32(dims[:3]), Block: [3]uint32(dims[3:]), SharedMem: shared, Deadline: time.Duration(budget) * time.Millisecond}
	var used []*buffer
	for _, a := range args {
		if !a.isRef {
			launch.Args = append(launch.Args, accel.RawValue(a.inline))
			continue
		}
		b, ok := h.handles[a.handle].(*buffer)
		if !ok || b.d != d {
			return nil, badParams("handle %d is no buffer of device %s", a.handle, id)
		}
		if bindings := kernel.Info().Bindings; len(used) < len(bindings) && !b.allows(bindings[len(used)].Access) {
			return nil, fail("t_accel_launch_failed", "the kernel's use of binding %d is not what buffer %d is for", len(used), a.handle)
		}
		used = append(used, b)
		launch.Args = append(launch.Args, accel.RawArg(b.memory))
	}
	if len(d.queue) >= h.limits.MaxQueue {
		return nil, fail("t_ctl_overflow", "%d submissions were not waited for: read their records, or SYNC", len(d.queue))
	}

	event, err := d.gpu.Default().Launch(launch)
	if err != nil {
		return nil, err
	}
	s := &submission{d: d, event: event}
	d.queue = append(d.queue, s)
	for _, b := range used {
		b.reading, b.writing, b.last = 0, 0, s
	}
	return &record{wait: func() []byte { return ending(s.wait()) }}, nil
}

// allows reports whether a kernel may use the buffer so.
func (b *buffer) allows(a client.Access) bool {
	return (a&client.Read == 0 || b.usage != client.Readback) && (a&client.Write == 0 || b.usage != client.Upload)
}

// sync waits for what a queue was given before.
func (h *Host) sync(backend, id, queue string, timeout uint32) (stream, error) {
	d, err := h.device(backend, id)
	if err != nil {
		return nil, err
	}
	wait := func(ctx context.Context) error { return d.gpu.Default().Synchronize(ctx) }
	if queue != defaultQueue {
		s := h.sideByName(d, queue)
		if s == nil {
			return nil, badParams("there is no queue %q", queue)
		}
		wait = s.stream.Synchronize
	}

	ctx, stop := context.WithTimeout(h.ctx, time.Duration(timeout)*time.Millisecond)
	defer stop()
	if err := wait(ctx); errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil, fail("t_ctl_timeout", "the queue has work after %d ms", timeout)
	} else if errors.Is(err, accel.DeviceUnavailable) {
		return nil, err
	} // each submission tells how it ended itself
	if queue == defaultQueue && len(d.queue) > 0 {
		_ = d.queue[len(d.queue)-1].wait()
	}
	return &record{rest: []byte{1}}, nil
}
