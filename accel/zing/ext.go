package zing

import (
	"context"
	"errors"
	"strconv"
	"time"

	"capgpu/accel"
)

// The modes of cap.accel.ext.v1.
const (
	modeStreamCreate  = 1
	modeStreamDestroy = 2
	modeEventCreate   = 3
	modeEventRecord   = 4
	modeEventWait     = 5
	modeBufferCopy    = 6
	modeModuleLoad    = 7
	modeModuleUnload  = 8
)

// The record of EVENT_WAIT.
const (
	eventPending  = 0
	eventSignaled = 1
	eventTimeout  = 2
)

// side is a stream that the guest made. It has no work: it orders events.
type side struct {
	d      *device
	stream *accel.Stream[accel.Device]
}

// event is an event that the guest made; at is the zero event until it is recorded.
type event struct {
	d  *device
	at accel.Event[accel.Device]
}

func errInvalid(format string, args ...any) *failure {
	return fail("t_accel_invalid_handle", format, args...)
}

// openExt is CAPS_OPEN of cap.accel.ext.v1.
func (h *Host) openExt(mode uint32, r *reader, timeout uint32) (stream, uint32, error) {
	backend, id := r.str(), r.str()
	var do func(d *device) ([]byte, error)
	done := func(err error) ([]byte, error) { return []byte{1}, err }
	switch mode {
	case modeStreamCreate:
		flags := r.h4()
		do = func(d *device) ([]byte, error) { return h.streamCreate(d, flags) }
	case modeStreamDestroy:
		s := r.h4()
		do = func(d *device) ([]byte, error) { return done(h.streamDestroy(d, s)) }
	case modeEventCreate:
		flags := r.h4()
		do = func(d *device) ([]byte, error) { return h.eventCreate(d, flags) }
	case modeEventRecord:
		s, e := r.h4(), r.h4()
		do = func(d *device) ([]byte, error) { return done(h.eventRecord(d, s, e)) }
	case modeEventWait:
		s, e, most := r.h4(), r.h4(), r.h4()
		do = func(d *device) ([]byte, error) { return h.eventWait(d, s, e, min(most, timeout)) }
	case modeBufferCopy:
		src, dst, bytes, flags := r.h4(), r.h4(), r.h8(), r.h4()
		do = func(d *device) ([]byte, error) { return done(h.bufferCopy(d, int32(src), int32(dst), bytes, flags)) }
	case modeModuleLoad:
		module, hint := r.bytes(), r.bytes()
		do = func(d *device) ([]byte, error) {
			id, err := h.load(d, module, hint)
			return appendBytes(nil, id), err
		}
	case modeModuleUnload:
		module := string(r.bytes())
		do = func(*device) ([]byte, error) { return done(h.unload(module)) }
	default:
		return nil, 0, badParams("there is no mode %d", mode)
	}
	if err := r.end(); err != nil {
		return nil, 0, err
	}

	d, err := h.device(backend, id)
	if err != nil {
		return nil, 0, err
	}
	rest, err := do(d)
	return &record{rest: rest}, hflagsRecord, err
}

func (h *Host) streamCreate(d *device, flags uint32) ([]byte, error) {
	if flags > 2 {
		return nil, badParams("flags are %#x: 1 (low priority) or 2 (high), or none", flags)
	}
	s, err := accel.NewStream[accel.Device](h.ctx, d.gpu)
	if err != nil {
		return nil, err
	}
	h.streamIDs++
	h.streams[h.streamIDs] = &side{d, s}
	return appendH4(nil, h.streamIDs), nil
}

func (h *Host) streamDestroy(d *device, id uint32) error {
	s := h.streams[id]
	if s == nil || s.d != d {
		return errInvalid("there is no stream %d", id)
	}
	delete(h.streams, id)
	return s.stream.Close(h.ctx)
}

func (h *Host) eventCreate(d *device, flags uint32) ([]byte, error) {
	if flags > 1 {
		return nil, badParams("flags are %#x: 1 (timing), or none", flags)
	}
	if len(h.events) >= maxEvents {
		return nil, fail("t_cap_denied", "a guest has at most %d events", maxEvents)
	}
	h.eventIDs++
	h.events[h.eventIDs] = &event{d: d}
	return appendH4(nil, h.eventIDs), nil
}

// maxEvents bounds what a guest has this process remember; nothing destroys an event.
const maxEvents = 1 << 16

// sideOf finds a stream; 0 is the default one.
func (h *Host) sideOf(d *device, id uint32) (*accel.Stream[accel.Device], error) {
	if id == 0 {
		return d.gpu.Default(), nil
	}
	s := h.streams[id]
	if s == nil || s.d != d {
		return nil, errInvalid("there is no stream %d", id)
	}
	return s.stream, nil
}

// sideByName finds a stream by its id in decimal.
func (h *Host) sideByName(d *device, name string) *side {
	id, err := strconv.ParseUint(name, 10, 32)
	if err != nil || strconv.FormatUint(id, 10) != name {
		return nil
	}
	if s := h.streams[uint32(id)]; s != nil && s.d == d {
		return s
	}
	return nil
}

func (h *Host) eventRecord(d *device, stream, id uint32) error {
	s, err := h.sideOf(d, stream)
	if err != nil {
		return err
	}
	e := h.events[id]
	if e == nil || e.d != d {
		return errInvalid("there is no event %d", id)
	}
	at, err := s.Record()
	if err == nil {
		e.at = at
	}
	return err
}

func (h *Host) eventWait(d *device, stream, id, most uint32) ([]byte, error) {
	if _, err := h.sideOf(d, stream); err != nil {
		return nil, err
	}
	e := h.events[id]
	if e == nil || e.d != d {
		return nil, errInvalid("there is no event %d", id)
	}
	if e.at.ID() == 0 {
		return []byte{eventPending}, nil
	}
	if done, err := e.at.Done(); done {
		return []byte{eventSignaled}, nil
	} else if errors.Is(err, accel.DeviceUnavailable) {
		return nil, err
	}
	if most == 0 {
		return []byte{eventPending}, nil
	}

	ctx, stop := context.WithTimeout(h.ctx, time.Duration(most)*time.Millisecond)
	defer stop()
	switch err := e.at.Synchronize(ctx); {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return []byte{eventTimeout}, nil
	case errors.Is(err, accel.DeviceUnavailable):
		return nil, err
	}
	return []byte{eventSignaled}, nil // however the work before it ended: submissions tell that
}

// bufferCopy copies and waits: its record has no room for a failure.
func (h *Host) bufferCopy(d *device, src, dst int32, bytes uint64, flags uint32) error {
	from, ok := h.handles[src].(*buffer)
	to, fine := h.handles[dst].(*buffer)
	switch {
	case flags > 1:
		return badParams("flags are %#x: 1 (peer), or none", flags)
	case !ok || !fine:
		return errInvalid("handles %d and %d are not both buffers", src, dst)
	case from.d != d || to.d != d:
		return fail("t_accel_copy_failed", "the buffers are not both of device %d", d.info.Index)
	case from == to || bytes == 0 || bytes > uint64(min(from.memory.Len(), to.memory.Len())):
		return fail("t_accel_copy_failed", "%d bytes from %d to %d: a copy is between two buffers, and within both", bytes, from.memory.Len(), to.memory.Len())
	}

	s := d.gpu.Default()
	e, err := accel.RawCopy(s, to.memory, from.memory, bytes)
	if err == nil {
		err = e.Synchronize(h.ctx)
	}
	if err != nil && !errors.Is(err, accel.DeviceUnavailable) {
		return fail("t_accel_copy_failed", "%v", err)
	} else if err != nil {
		return err
	}
	for _, b := range []*buffer{from, to} {
		b.reading, b.writing = 0, 0
	}
	return nil
}
