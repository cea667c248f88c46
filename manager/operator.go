package manager

import (
	"context"
	"errors"
	"fmt"

	"capgpu/control"
	"capgpu/gpuerr"
)

// ask is an operator's request for the driver of a device.
type ask struct {
	what  control.MsgType // TypeUpgrade, TypeSuspend, TypeResume
	force bool            // of an upgrade
	done  chan asked      // holds the answer
}

type asked struct {
	reply control.UpgradeReply
	err   error
}

// order makes the supervision serve an operator's request, between two events of the driver.
func (d *device) order(ctx context.Context, what control.MsgType, force bool) (control.UpgradeReply, error) {
	a := &ask{what: what, force: force, done: make(chan asked, 1)}
	for taken := false; !taken; {
		_, changed := d.board.get()
		if _, err := d.liveOrSuspended(); err != nil {
			if what != control.TypeUpgrade && d.orderAbsent(what == control.TypeSuspend) {
				return control.UpgradeReply{}, nil
			}
			return control.UpgradeReply{}, err
		}
		select {
		case d.requests.operator <- a:
			taken = true
		case <-changed: // the driver may be gone for good
		case <-d.supervision.done:
			return control.UpgradeReply{}, gpuerr.New(gpuerr.DeviceLost, "device %s gets no driver any more", d.name)
		case <-ctx.Done():
			return control.UpgradeReply{}, gpuerr.New(gpuerr.Busy, "device %s has no driver that could be asked now, or another upgrade is under way", d.name)
		}
	}

	select {
	case r := <-a.done:
		return r.reply, r.err
	case <-d.supervision.done:
		return control.UpgradeReply{}, gpuerr.New(gpuerr.DeviceLost, "device %s was stopped meanwhile", d.name)
	case <-ctx.Done(): // it is done and recorded all the same
		return control.UpgradeReply{}, ctx.Err()
	}
}

// orderAbsent suspends or resumes a device that has no driver now, and reports whether that
// was so. The next driver learns of it before it is ready.
func (d *device) orderAbsent(suspend bool) bool {
	absent, changed := d.board.suspendAbsent(suspend)
	if changed {
		d.recordSuspension(suspend, d.drivers.epoch.Load())
	}
	return absent
}

// recordSuspension writes the new state to the log and for the operator.
func (d *device) recordSuspension(suspended bool, epoch uint64) {
	kind, now := "device.resume", "resumed"
	if suspended {
		kind, now = "device.suspend", "suspended"
	}
	d.recordHost(kind, fmt.Sprintf("%s epoch=%d", d.name, epoch))
	d.say("device %s %s", d.name, now)
}

// liveOrSuspended returns the current driver, or why there is none.
func (d *device) liveOrSuspended() (*driverLink, error) {
	s, _ := d.board.get()
	if s.state == ready {
		return s.link, nil
	}
	return d.live()
}

// attendDriver watches a driver until it ends or an operator's request comes.
func (d *device) attendDriver(ctx context.Context, l *driverLink) (*ask, error) {
	watched, stop := context.WithCancel(ctx)
	defer stop()
	over := make(chan error, 1)
	go func() { over <- l.watch(watched, d.cfg.PingInterval, d.cfg.PingTimeout) }()
	select {
	case err := <-over:
		return nil, d.driverOver(ctx, err)
	case a := <-d.requests.operator:
		stop()
		if err := <-over; ctx.Err() != nil || !errors.Is(err, context.Canceled) {
			a.done <- asked{err: gpuerr.New(gpuerr.Busy, "the driver of %s was lost just now: %v", d.name, err)}
			return nil, d.driverOver(ctx, err)
		}
		return a, nil
	}
}

// serveDriver watches the driver of an epoch and its successors, until the last one ends.
// replaced is called with each successor.
func (d *device) serveDriver(ctx context.Context, l *driverLink, g *grants, desk *faultDesk, replaced func(*driverLink)) error {
	for {
		a, err := d.attendDriver(ctx, l)
		if a == nil {
			return err
		}
		r, next, over := d.obey(ctx, a, l, g, desk)
		if next != nil {
			l = next
			replaced(l)
		}
		if over != nil {
			over = d.driverOver(ctx, over)
		}
		a.done <- r
		if over != nil {
			return over
		}
	}
}

// obey serves one request. next is the driver from now on, if it was replaced; over is why
// the epoch has to end.
func (d *device) obey(ctx context.Context, a *ask, l *driverLink, g *grants, desk *faultDesk) (r asked, next *driverLink, over error) {
	switch a.what {
	case control.TypeUpgrade:
		r.reply, next, r.err, over = d.upgradeDriver(ctx, l, g, desk, a.force)
	case control.TypeSuspend:
		r.err = d.freeze(ctx, l)
	case control.TypeResume:
		r.err = d.thaw(ctx, l)
	}
	return r, next, over
}

func (d *device) freeze(ctx context.Context, l *driverLink) error {
	if s, _ := d.board.get(); s.suspended {
		return nil
	}
	if err := d.freezeDriver(ctx, l); err != nil {
		// The thaw must come after the freeze, however that ended and whenever the driver
		// reads it.
		if e := d.thawDriver(ctx, l); e != nil {
			d.log.Warn("have the driver go on", "err", e)
		}
		return err
	}
	d.board.suspend(true)
	d.recordSuspension(true, l.epoch)
	return nil
}

func (d *device) freezeDriver(ctx context.Context, l *driverLink) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StopTimeout+d.cfg.PingTimeout)
	defer cancel()
	_, err := l.call(ctx, control.TypeFreeze, control.HandoverRequest{TimeoutNanos: uint64(d.cfg.StopTimeout)}.AppendTo(nil), nil)
	return err
}

func (d *device) thawDriver(ctx context.Context, l *driverLink) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.PingTimeout)
	defer cancel()
	_, err := l.call(ctx, control.TypeThaw, nil, nil)
	return err
}

// becomeReady makes the device ready by change. The driver is frozen if the operator has
// suspended the device: a suspension outlives every driver, and ends with a resume.
func (d *device) becomeReady(ctx context.Context, l *driverLink, change func(*snapshot)) error {
	frozen := false
	for !d.board.readyIf(frozen, change) {
		step, what := d.freezeDriver, "have a driver of a suspended device stand still"
		if frozen {
			step, what = d.thawDriver, "have a driver of a device that was resumed go on"
		}
		if err := step(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		frozen = !frozen
	}
	return nil
}

func (d *device) thaw(ctx context.Context, l *driverLink) error {
	if err := d.thawDriver(ctx, l); err != nil {
		return err
	}
	if s, _ := d.board.get(); s.suspended {
		d.board.suspend(false)
		d.recordSuspension(false, l.epoch)
	}
	return nil
}
