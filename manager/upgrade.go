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
		case d.asks <- a:
			taken = true
		case <-changed: // the driver may be gone for good
		case <-d.done:
			return control.UpgradeReply{}, gpuerr.New(gpuerr.DeviceLost, "device %s gets no driver any more", d.name)
		case <-ctx.Done():
			return control.UpgradeReply{}, gpuerr.New(gpuerr.Busy, "device %s has no driver that could be asked now, or another upgrade is under way", d.name)
		}
	}

	select {
	case r := <-a.done:
		return r.reply, r.err
	case <-d.done:
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
		d.recordSuspension(suspend, d.epoch.Load())
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
	case a := <-d.asks:
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
	case !d.function.Identity().Fake || d.actors != nil:
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
	if _, err := d.audit.Append("driver.successor", "", fmt.Sprintf("%s epoch=%d pid=%d path=%s", d.name, l.epoch, p.child.pid(), p.from.path)); err != nil {
		if e := p.close(d.cfg.ReapTimeout); e != nil {
			d.left = errors.Join(d.left, e)
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
			d.left = errors.Join(d.left, e)
		}
		d.recordHost("driver.upgrade", fmt.Sprintf("%s epoch=%d ok=false cause=%q", d.name, l.epoch, clipped(err.Error())))
		d.log.Warn("the driver was not replaced", "epoch", l.epoch, "err", err)
		return reply, nil, begun, err, nil
	}

	d.reconcile.watch(next.child.pid(), d.name)
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

	d.reconcile.unwatch(l.child.pid())
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
			d.asking.leave()
		}
	}
	for n < cap(d.asking) {
		if err := d.asking.enter(ctx); err != nil {
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
