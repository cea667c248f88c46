package ddfrpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"capgpu/ddf"
	"capgpu/internal/shm"
	"capgpu/schema"
)

// Vector is the manager's ddf.Interrupt: an eventfd, and the link for the mask.
type Vector struct {
	link   *Link
	remote schema.Interrupt
	event  *shm.Interrupt

	mu sync.Mutex
	// +checklocks:mu
	gauge ddf.StormGauge
	// +checklocks:mu
	storming bool
	// +checklocks:mu
	owed uint64 // interrupts that came with a storm, counted after it
}

// askVector asks for a vector and its eventfd, and returns what takes the answers.
func (l *Link) askVector(ctx context.Context, grants schema.DriverGrants, i uint32) (finish func() error) {
	f, release := grants.Interrupt(ctx, func(args schema.DriverGrants_interrupt_Params) error {
		args.SetVector(i)
		return nil
	})
	pipelined := f.Interrupt() // once only, as in Pool.alloc
	fe, releaseEvent := pipelined.EventFd(ctx, nil)
	l.asked = append(l.asked, release, releaseEvent)
	take := func() error {
		res, err := f.Struct()
		if err != nil {
			return err
		}
		e, err := fe.Struct()
		if err != nil {
			return err
		}
		return l.addVector(res.Interrupt(), e.Memory())
	}
	return func() error {
		if err := take(); err != nil {
			return fmt.Errorf("vector %d: %w", i, err)
		}
		return nil
	}
}

// askVectors is askVector of those from one number to before another one.
func (l *Link) askVectors(ctx context.Context, grants schema.DriverGrants, from, to uint32) (asked []func() error) {
	for i := from; i < to; i++ {
		asked = append(asked, l.askVector(ctx, grants, i))
	}
	return asked
}

// addVector adds the next vector, with the eventfd that came with memory.
func (l *Link) addVector(remote schema.Interrupt, memory schema.SharedMemory) error {
	remote = remote.AddRef()
	l.release = append(l.release, remote.Release)
	event, err := l.event(memory)
	if err != nil {
		return err
	}
	// The end of the link ends every wait. Arming each wait for it would cost as much as
	// an interrupt does.
	context.AfterFunc(l.ctx, func() { event.Close() })
	v := &Vector{link: l, remote: remote, event: event}
	l.vectors = append(l.vectors, v)
	l.set.Interrupts = append(l.set.Interrupts, v)
	return nil
}

// Wait implements ddf.Interrupt. A vector that storms is masked, here as well as at
// the manager, which has a limit of its own and less patience.
func (v *Vector) Wait(ctx context.Context) (uint64, error) {
	if v.link.ctx.Err() != nil {
		return 0, errRevoked
	}
	if n, err := v.take(); n > 0 || err != nil {
		return n, err
	}

	n, err := v.event.Wait(ctx)
	switch {
	case err == nil:
		return v.counted(n)
	case v.link.ctx.Err() != nil:
		return 0, errRevoked
	case ctx.Err() != nil:
		return 0, ctx.Err()
	}

	return 0, err
}

// take returns the interrupts of a storm, once that is over.
func (v *Vector) take() (uint64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.storming {
		return 0, ddf.ErrStorm
	}
	n := v.owed
	v.owed = 0
	return n, nil
}

// counted is n, unless it makes a storm.
func (v *Vector) counted(n uint64) (uint64, error) {
	v.mu.Lock()
	storm := v.gauge.Count(n, time.Now())
	if storm {
		v.storming = true
		v.owed += n
	}
	v.mu.Unlock()
	if !storm {
		return n, nil
	}
	if err := v.Mask(); err != nil {
		return 0, err
	}
	return 0, ddf.ErrStorm
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

// Unmask implements ddf.Interrupt. It ends a storm, as far as it is over.
func (v *Vector) Unmask() error {
	err := v.link.insist(func() error {
		f, release := v.remote.Unmask(v.link.ctx, nil)
		defer release()
		_, err := f.Struct()
		return err
	})
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.storming = false
	v.mu.Unlock()
	return nil
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
