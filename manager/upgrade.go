package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/shm"
)

// A live upgrade replaces the driver of an epoch by another process, of the program that is
// on the disk now. The work of clients continues; the epoch stays, and its generation goes up
// by one. The manager connects the two drivers and moves the grants, and does not read what
// the drivers send each other.
//
//	spawn ─► Ready ─► Handover ┬► all memory adopted ─► kill and reap ─► Go ─► ready again
//	                  TakeOver ┘            commit ──┘
//	  any failure before: the driver goes on (Thaw), the successor is ended
//	  any failure after:  as if a driver had died
//
// The replaced driver is dead before its successor starts any work, so no work runs twice,
// even if one of the drivers misbehaves.

// maxPreemptions is how often a forced upgrade is tried again after sessions that blocked it
// were ended. Each time those of one tenant end.
const maxPreemptions = 4

// upgradeDriver replaces l, or returns why not; then l continues. With force, sessions that
// block the replacement are ended, and no others, if l was asked to stop and hand over and
// could not.
func (d *device) upgradeDriver(ctx context.Context, l *driverLink, g *grants, desk *faultDesk, force bool) (reply control.UpgradeReply, next *driverLink, err, over error) {
	preempted := uint32(0)
	for again := maxPreemptions; ; again-- {
		var begun bool
		reply, next, begun, err, over = d.tryUpgrade(ctx, l, g, desk)
		reply.Preempted = preempted
		if err == nil {
			return reply, next, nil, over
		}
		n := uint32(0)
		if next == nil && over == nil && force && again > 0 && begun && errors.Is(err, gpuerr.Busy) {
			var e error
			if n, e = d.preempt(ctx, l); e != nil {
				n, err = 0, errors.Join(err, e)
			}
		}
		if preempted += n; n == 0 {
			if preempted > 0 {
				err = fmt.Errorf("%w (%d sessions that were in the way have ended all the same)", err, preempted)
			}
			return reply, next, err, over
		}
	}
}

// preempt makes a driver end the sessions that blocked its replacement.
func (d *device) preempt(ctx context.Context, l *driverLink) (sessions uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.PingTimeout)
	defer cancel()
	m, err := l.call(ctx, control.TypePreempt, nil, nil)
	if err != nil {
		return 0, err
	}
	r, err := control.ParseEndedReply(m.Body)
	if err == nil && r.Sessions > 0 {
		d.recordHost("driver.preempt", fmt.Sprintf("%s epoch=%d sessions=%d", d.name, l.epoch, r.Sessions))
	}
	return r.Sessions, err
}

// tryUpgrade is one attempt of upgradeDriver. begun reports that l was asked to stop.
func (d *device) tryUpgrade(ctx context.Context, l *driverLink, g *grants, desk *faultDesk) (reply control.UpgradeReply, next *driverLink, begun bool, err, over error) {
	s, _ := d.board.get()
	switch {
	case !d.function.Identity().Fake || d.drivers.actors != nil:
		return reply, nil, false, gpuerr.New(gpuerr.Unimplemented, "the driver of %s cannot be replaced while it has sessions: its function is a real one, whose registers cannot have two drivers", d.name), nil
	case s.suspended:
		return reply, nil, false, gpuerr.New(gpuerr.Busy, "device %s is suspended; resume it first", d.name), nil
	}

	to := &holder{}
	p, err := d.spawnDriver()
	if err != nil {
		return reply, nil, false, err, nil
	}

	crashpoint.Here("manager.upgrade.spawned")

	// As for any driver, no grants without a record.
	if _, err := d.logs.device.Append("driver.successor", "", fmt.Sprintf("%s epoch=%d pid=%d path=%s", d.name, l.epoch, p.child.pid(), p.from.path)); err != nil {
		if e := p.close(d.cfg.ReapTimeout); e != nil {
			d.supervision.left = errors.Join(d.supervision.left, e)
		}
		return reply, nil, false, errNotRecorded(err), nil
	}

	next = d.promoteFor(p, g, desk, to)
	leave := func() {}
	defer func() { leave() }()
	var told control.HandoverReply
	var pause time.Duration
	if err = d.awaitSuccessor(ctx, l, next); err == nil {
		if leave, err = d.alone(ctx); err == nil {
			begun = true
			told, over, err = d.bringTogether(ctx, l, next, &pause, func() error { return g.handOver(l.holder, to) })
		}
	}

	if err != nil {
		if e := next.end(d.log, false, d.cfg.ReapTimeout); e != nil {
			d.supervision.left = errors.Join(d.supervision.left, e)
		}
		d.recordHost("driver.upgrade", fmt.Sprintf("%s epoch=%d ok=false cause=%q", d.name, l.epoch, clipped(err.Error())))
		d.log.Warn("the driver was not replaced", "epoch", l.epoch, "err", err)
		return reply, nil, begun, err, nil
	}

	d.kernel.reconciler.watch(next.child.pid(), d.name)
	if over != nil { // the memory is lost, whichever driver holds it
		d.recordHost("driver.upgrade", fmt.Sprintf("%s epoch=%d ok=false cause=%q", d.name, l.epoch, clipped(over.Error())))
		return reply, next, begun, gpuerr.New(gpuerr.DeviceLost, "the driver of %s was ended, and another does not go on with its sessions, which are lost: %v", d.name, over), over
	}

	now := d.board.succeed(next)
	d.recordHost("driver.upgrade", fmt.Sprintf("%s epoch=%d ok=true generation=%d pid=%d sessions=%d pause=%v", d.name, l.epoch, now.generation, next.child.pid(), told.Sessions, pause))
	d.say("device %s has another driver (epoch %d, generation %d, driver pid %d)", d.name, l.epoch, now.generation, next.child.pid())
	if e := d.tellTenants(ctx, next, d.tenants(), d.cfg.PingTimeout); e != nil {
		d.log.Warn("tell the driver what tenants have", "err", e)
	}

	return control.UpgradeReply{Epoch: l.epoch, Generation: now.generation, Sessions: told.Sessions, PauseNanos: uint64(pause)}, next, begun, nil, nil
}

// bringTogether makes the successor continue with all that the driver has. After an error the
// driver continues, unless it is dead. over is why the epoch has to end although the
// successor has received everything.
func (d *device) bringTogether(ctx context.Context, l, next *driverLink, pause *time.Duration, commit func() error) (told control.HandoverReply, over, err error) {
	began := time.Now()
	told, err = d.transfer(ctx, l, next)
	crashpoint.Here("manager.upgrade.told")
	if err == nil {
		err = commit()
	}

	if err != nil {
		if e := d.thaw(ctx, l); e != nil {
			d.log.Warn("have the driver go on", "err", e)
		}
		return told, nil, err
	}

	crashpoint.Here("manager.upgrade.committed")

	// From here on a failure is a driver's death: the successor owns the grants.
	if e := l.end(d.log, false, d.cfg.ReapTimeout); e != nil {
		return told, fmt.Errorf("the driver that was replaced: %w", e), nil
	}

	d.kernel.reconciler.unwatch(l.child.pid())
	crashpoint.Here("manager.upgrade.alone")
	goCtx, cancel := context.WithTimeout(ctx, d.cfg.PingTimeout)
	defer cancel()
	if _, e := next.call(goCtx, control.TypeGo, nil, nil); e != nil {
		over = fmt.Errorf("the successor of a driver does not go on: %w", e)
	}

	crashpoint.Here("manager.upgrade.gone")
	*pause = time.Since(began)
	return told, over, nil
}

// alone delays tenants' requests to the driver, which are few and bounded, until the upgrade
// is over.
func (d *device) alone(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*d.cfg.PingTimeout)
	defer cancel()
	n := 0
	leave = func() { // idempotent
		for ; n > 0; n-- {
			d.requests.turns.leave()
		}
	}
	for n < cap(d.requests.turns) {
		if err := d.requests.turns.enter(ctx); err != nil {
			leave()
			return leave, gpuerr.New(gpuerr.Busy, "tenants keep the driver of %s from being replaced; try again", d.name)
		}
		n++
	}

	return leave, nil
}

// awaitSuccessor waits until the successor runs and holds nothing yet. Meanwhile it still
// sees the death of the driver that is to be replaced.
func (d *device) awaitSuccessor(ctx context.Context, before, l *driverLink) error {
	timer := time.NewTimer(d.cfg.ReadyTimeout)
	defer timer.Stop()
	select {
	case <-l.ready:
		return l.child.checkConfined(d.log, 0, "driver", d.name, "epoch", l.epoch)
	case <-l.child.exited:
		return gpuerr.New(gpuerr.Disconnected, "the successor died before it was ready: %v", l.child.err)
	case <-l.caller.Done():
		return gpuerr.New(gpuerr.Disconnected, "the successor's supervision link failed before it was ready")
	case <-l.grantsDone:
		return gpuerr.New(gpuerr.Disconnected, "the successor's grant link ended before it was ready")
	case <-before.child.exited:
		return gpuerr.New(gpuerr.Disconnected, "the driver died before its successor was ready: %v", before.child.err)
	case <-before.caller.Done():
		return gpuerr.New(gpuerr.Disconnected, "the driver's supervision link failed before its successor was ready")
	case <-before.grantsDone:
		return gpuerr.New(gpuerr.Disconnected, "the driver's grant link ended before its successor was ready")
	case <-timer.C:
		return gpuerr.New(gpuerr.Busy, "the successor was not ready after %v", d.cfg.ReadyTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// transfer connects the two drivers by a socket. It returns when one has sent everything and
// the other has received it, or one of them has failed.
func (d *device) transfer(ctx context.Context, l, next *driverLink) (told control.HandoverReply, err error) {
	from, to, err := shm.Socketpair()
	if err != nil {
		return told, err
	}

	req := control.HandoverRequest{TimeoutNanos: uint64(d.cfg.StopTimeout)}.AppendTo(nil)
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StopTimeout+d.cfg.PingTimeout)
	defer cancel()
	taken := make(chan error, 1)
	go func() {
		_, err := next.call(ctx, control.TypeTakeOver, req, []int{to})
		taken <- err
		unix.Close(to) // and the bytes in it, which may be of another process
	}()

	m, err := l.call(ctx, control.TypeHandover, req, []int{from})
	go unix.Close(from) // see above
	if err == nil {
		told, err = control.ParseHandoverReply(m.Body)
	}
	if takeErr := <-taken; takeErr != nil && (err == nil || !errors.Is(takeErr, gpuerr.Disconnected)) {
		err = takeErr // it tells more than that the other end is closed
	}

	return told, err
}
