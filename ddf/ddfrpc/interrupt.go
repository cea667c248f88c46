package ddfrpc

import (
	"context"

	"capgpu/ddf"
	"capgpu/internal/shm"
	"capgpu/schema"
)

// Vector is the manager's ddf.Interrupt: an eventfd, and the link for the mask.
type Vector struct {
	link   *Link
	remote schema.Interrupt
	event  *shm.Event
}

func (l *Link) takeVector(ctx context.Context, grants schema.DriverGrants, i uint32) error {
	f, release := grants.Interrupt(ctx, func(args schema.DriverGrants_interrupt_Params) error {
		args.SetVector(i)
		return nil
	})
	defer release()
	res, err := f.Struct()
	if err != nil {
		return err
	}
	remote := res.Interrupt().AddRef()
	l.release = append(l.release, remote.Release)
	fe, releaseEvent := remote.EventFd(ctx, nil)
	defer releaseEvent()
	e, err := fe.Struct()
	if err != nil {
		return err
	}
	event, err := l.event(e.Memory())
	if err != nil {
		return err
	}
	v := &Vector{link: l, remote: remote, event: event}
	l.vectors = append(l.vectors, v)
	l.set.Interrupts = append(l.set.Interrupts, v)
	return nil
}

// Wait implements ddf.Interrupt.
func (v *Vector) Wait(ctx context.Context) (uint64, error) {
	if v.link.ctx.Err() != nil {
		return 0, errRevoked
	}
	within, done := v.link.within(ctx)
	defer done()
	n, err := v.event.Wait(within)
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case v.link.ctx.Err() != nil:
		return 0, errRevoked
	}
	return 0, err
}

// Mask implements ddf.Interrupt.
func (v *Vector) Mask() error {
	return v.link.insist(func() error {
		f, release := v.remote.Mask(v.link.ctx, nil)
		defer release()
		_, err := f.Struct()
		return err
	})
}

// Unmask implements ddf.Interrupt.
func (v *Vector) Unmask() error {
	return v.link.insist(func() error {
		f, release := v.remote.Unmask(v.link.ctx, nil)
		defer release()
		_, err := f.Struct()
		return err
	})
}

// Ack implements ddf.Interrupt.
func (v *Vector) Ack() error {
	return v.link.insist(func() error {
		f, release := v.remote.Ack(v.link.ctx, nil)
		defer release()
		_, err := f.Struct()
		return err
	})
}

var _ ddf.Interrupt = (*Vector)(nil)
