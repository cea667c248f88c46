package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"capgpu/internal/crashpoint"
)

// runSupervise keeps a driver running until ctx ends, the budget is spent, or the function is
// lost.
func (d *device) runSupervise(ctx context.Context) {
	defer close(d.supervision.done)
	defer func() { d.supervision.left = errors.Join(d.supervision.left, d.drivers.standby.close()) }()
	respawn := backoff{policy: d.policy.Respawn}
	for epoch := uint64(1); ; epoch++ {
		began := time.Now()
		wasReady, cause := d.runEpoch(ctx, epoch)
		if errors.As(cause, new(*remains)) {
			d.supervision.left = cause // a function never has two drivers
		}
		delay, why := d.next(&respawn, time.Since(began), wasReady, cause)
		switch {
		case isRemoved(d.function):
			d.remove(epoch)
			return
		case ctx.Err() != nil && !errors.As(cause, new(*remains)) && !errors.As(cause, new(*wedgedError)):
			d.stopped()
			return
		case why != nil:
			d.wedge(epoch, why)
			d.drivers.standby.cancel() // no driver follows
			d.attend(ctx, epoch)
			return
		}
		d.lost(epoch, cause, delay)
		crashpoint.Here("manager.respawn.waiting")
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
			continue
		case <-d.function.Removed():
			d.remove(epoch)
		case <-ctx.Done():
			d.stopped()
		}
		timer.Stop()
		return
	}
}

// next returns the delay before the next driver, or why none follows.
func (d *device) next(respawn *backoff, lived time.Duration, wasReady bool, cause error) (delay time.Duration, why error) {
	switch {
	case errors.As(cause, new(*remains)):
		return 0, fmt.Errorf("%w: nothing can use the device while that process is there; find out what it waits for (/proc/PID/task/*/stack) and restart device-manager", cause)
	case errors.As(cause, new(*wedgedError)):
		return 0, fmt.Errorf("%w; nothing can use the device: restart device-manager", cause)
	}
	delay, again := respawn.died(time.Now(), lived, wasReady)
	if !again {
		p := d.policy.Respawn
		return 0, fmt.Errorf("%w; given up after more than %d deaths before ready within %v: remove the reason and restart device-manager", cause, p.Budget, p.Window)
	}
	return delay, nil
}

// attend waits for the removal of a function that gets no further driver, because the host
// waits for the manager then.
func (d *device) attend(ctx context.Context, epoch uint64) {
	select {
	case <-d.function.Removed():
		d.remove(epoch)
	case <-ctx.Done():
	}
}

func (d *device) stopped() {
	d.board.update(func(s *snapshot) { s.state, s.link, s.cause = recovering, nil, "device-manager is stopping" })
}

// lost publishes that the driver of an epoch is gone and another one will follow.
func (d *device) lost(epoch uint64, cause error, delay time.Duration) {
	if s, _ := d.board.get(); s.cause != clipped(cause.Error()) {
		d.board.update(func(s *snapshot) { s.link, s.cause = nil, clipped(cause.Error()) })
	}
	d.say("device %s lost (epoch %d): %v; next driver in %v", d.name, epoch, cause, delay)
	d.log.Warn("driver lost", "epoch", epoch, "cause", cause, "delay", delay)
}

// wedge gives up the device.
func (d *device) wedge(epoch uint64, cause error) {
	d.board.update(func(s *snapshot) { s.state, s.link, s.cause = wedged, nil, clipped(cause.Error()) })
	d.say("device %s wedged: %v", d.name, cause)
	d.log.Warn("wedged", "epoch", epoch, "cause", cause)
	d.recordHost("device.wedged", fmt.Sprintf("%s epoch=%d cause=%q", d.name, epoch, clipped(cause.Error())))
}
