package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"capgpu/ddf/vfio"
	"capgpu/internal/crashpoint"
	"capgpu/ledger"
)

// runEpoch runs one driver, from spawn until its last page is scrubbed. It returns why the
// epoch ended, and whether the driver was ready.
func (d *device) runEpoch(ctx context.Context, epoch uint64) (wasReady bool, cause error) {
	account, err := d.account.Child(fmt.Sprintf("epoch-%d", epoch), d.epochLimits())
	if err != nil {
		return false, err
	}

	g, err := newGrants(grantsOf{info: d.info(epoch), function: d.function, space: d.space, account: account, audit: d.logs.device, own: d.logs.drivers, shares: d.logs.shares, huge: d.policy.HugePages, log: d.log})
	if err != nil {
		return false, fmt.Errorf("make the grants: %w", err)
	}

	var left *remains
	began := false
	d.drivers.epoch.Store(epoch)
	d.kernel.recorder.SetEpoch(epoch)
	defer func() { cause = d.endEpoch(g, began, left != nil && left.grantsRun, cause) }()
	how, err := d.function.Begin()
	if errors.Is(err, vfio.ErrNotStopped) {
		return false, &wedgedError{fmt.Errorf("reset the function: %w", err)}
	}
	if err != nil {
		return false, fmt.Errorf("reset the function: %w", err)
	}

	began = true
	crashpoint.Here("manager.epoch.reset")
	desk := newFaultDesk(g.failure)
	d.faults.desk.Store(desk)

	// No driver is started without a record of its grants.
	for _, r := range [][2]string{
		{"device.reset", fmt.Sprintf("%s epoch=%d how=%q", d.name, epoch, how)},
		{"driver.start", fmt.Sprintf("%s epoch=%d path=%s", d.name, epoch, d.driver())},
	} {
		if _, err := d.logs.device.Append(r[0], "", r[1]); err != nil {
			return false, fmt.Errorf("write the audit log: %w", err)
		}
	}

	link, err := d.openDriver(ctx, g, desk)
	if err != nil {
		return false, err
	}

	d.kernel.reconciler.watch(link.child.pid(), d.name)
	defer func() { d.kernel.reconciler.unwatch(link.child.pid()) }() // of the last driver
	endWatch := d.watchFunction(link, desk)
	defer func() { endWatch() }()

	// Before the driver is taken down, sessions are refused and waiters told.
	defer func() {
		if isRemoved(d.function) {
			// The driver frees the memory of its sessions, and the device may be using it.
			if _, err := d.stopFunction(); err != nil {
				d.log.Warn("stop a function that is being removed", "err", err)
			}
			if err := link.tellGone(d.removal()); err != nil {
				d.log.Warn("tell the driver that its device is gone", "err", err)
			}
		}
		patience, stopping := d.cfg.ReapTimeout, ctx.Err() != nil
		if stopping {
			patience = min(patience, stopPatience)
		}
		if errors.As(link.end(d.log, stopping, patience), &left) {
			cause = fmt.Errorf("%w (%w)", left, cause)
		}
	}()

	crashpoint.Here("manager.epoch.spawned")
	if err := d.awaitReady(ctx, link); err != nil {
		return false, err
	}

	d.drivers.standby.order(true)
	defer d.drivers.standby.order(false)
	err = d.serveDriver(ctx, link, g, desk, func(next *driverLink) {
		endWatch()
		link, endWatch = next, d.watchFunction(next, desk)
	})
	errors.As(err, &left) // left by a driver that was replaced
	return true, err
}

// endEpoch takes everything back after the driver is gone: first it stops the function, then
// it takes the memory. It returns why the epoch ended, as a *wedgedError if the device may
// still reach some of the memory.
func (d *device) endEpoch(g *grants, began, callsRun bool, cause error) error {
	crashpoint.Here("manager.epoch.reaped")
	var running error
	if began { // a function that the host takes away runs until it is stopped
		running = d.quiesce(g.info.Epoch)
		d.endFaults()
	}

	crashpoint.Here("manager.epoch.quiesced")
	r := g.revoke(callsRun, running)
	crashpoint.Here("manager.epoch.revoked")
	err := errors.Join(r.err, d.ledger.Check())
	d.supervision.held = d.supervision.held || r.held > 0
	if !callsRun && r.kept == 0 && !d.supervision.held {
		err = errors.Join(err, d.account.Zero())
	}
	if err != nil {
		d.log.Error("the driver's grants did not come back whole", "epoch", g.info.Epoch, "err", err)
	}
	if r.kept > 0 {
		d.supervision.kept = g
	}
	if lost := errors.Join(running, r.lost); lost != nil && !errors.As(cause, new(*wedgedError)) {
		cause = &wedgedError{fmt.Errorf("%w (after: %w)", lost, cause)}
	}

	d.flushKernel()
	sessions := d.recordLost(g.info.Epoch, g.sessions, cause)
	d.record("driver.end", fmt.Sprintf("%s epoch=%d freed=%d kept=%d windows=%d vectors=%d sessions=%d cause=%q",
		d.name, g.info.Epoch, r.freed, r.kept, len(g.windows), len(g.vectors), sessions, clipped(cause.Error())))
	return cause
}

// stopGraces is how many ReapTimeouts a function may take to stop: the reset of a real device
// may take some seconds.
const stopGraces = 3

// quiesce stops the function before its memory is unmapped.
func (d *device) quiesce(epoch uint64) error {
	how, err := d.stopFunction()
	if err != nil {
		return fmt.Errorf("the function could not be stopped: %w", err)
	}
	d.record("device.quiesce", fmt.Sprintf("%s epoch=%d how=%q", d.name, epoch, how))
	return nil
}

// stopFunction stops the function. If that takes too long the function counts as running,
// whatever the attempt achieves later.
func (d *device) stopFunction() (how string, err error) {
	type stop struct {
		how string
		err error
	}
	stopped := make(chan stop, 1)
	go func() {
		how, err := d.function.Quiesce()
		stopped <- stop{how, err}
	}()

	patience := stopGraces * d.cfg.ReapTimeout
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s := <-stopped:
		return s.how, s.err
	case <-timer.C:
		return "", fmt.Errorf("the kernel has not come back for %v", patience)
	}
}

// driver returns the program that drives the function; driverArgs returns its arguments.
func (d *device) driver() string {
	switch {
	case d.policy.Driver != "":
		return d.policy.Driver
	case d.function.Identity().Fake:
		return d.cfg.DriverPath
	}
	return d.cfg.ServicePath
}

func (d *device) driverArgs() []string {
	if d.function.Identity().Fake {
		return d.cfg.DriverArgs
	}
	return nil
}

// watchFunction watches the function while its driver lives, until end is called.
func (d *device) watchFunction(l *driverLink, desk *faultDesk) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { d.runRemovalWatch(ctx, l.failure) })
	watching.Go(func() { d.runErrorWatch(ctx, l.failure) })
	watching.Go(func() { d.runStormWatch(ctx, l.epoch, l.failure) })
	watching.Go(func() { desk.run(ctx, d.tellFault(l)) })
	return func() {
		cancel()
		watching.Wait()
	}
}

// awaitReady waits for the driver's Ready and then makes the device ready.
func (d *device) awaitReady(ctx context.Context, l *driverLink) error {
	timer := time.NewTimer(d.cfg.ReadyTimeout)
	defer timer.Stop()
	tenants := d.tenants()
	telling := d.beginTelling(ctx, l, tenants)
	defer telling.end()
	select {
	case r := <-l.ready:
		if !l.checked {
			if err := l.child.checkConfined(d.log, slog.LevelInfo, "driver", d.name, "epoch", l.epoch); err != nil {
				return err
			}
		}
		if err := telling.await(d.cfg.PingTimeout); err != nil {
			return err
		}
		gone := false
		if err := d.becomeReady(ctx, l, func(s *snapshot) {
			if gone = isRemoved(d.function); gone { // already on the board, or soon
				return
			}
			s.state, s.epoch, s.cause, s.link, s.generation = ready, l.epoch, "", l, 1
			s.escalation, s.shortage = escalation{}, ""
			s.backend, s.memoryBytes = clipped(r.Backend), min(r.MemoryBytes, d.policy.MemoryBytes)
		}); err != nil {
			return err
		}
		if gone {
			return d.removal()
		}
		d.say("device %s ready (epoch %d, driver pid %d)", d.name, l.epoch, l.child.pid())
		d.log.Info("ready", "epoch", l.epoch, "pid", l.child.pid())
		d.record("driver.ready", fmt.Sprintf("%s epoch=%d pid=%d", d.name, l.epoch, l.child.pid()))
		// Changes since the start were not sent to a driver that was not ready. If it fails
		// now, watchDriver sees why.
		if err := d.catchUp(ctx, l, tenants); err != nil {
			d.log.Warn("tell the driver what has changed of the policy", "err", err)
		}
		return nil
	case <-l.child.exited:
		return fmt.Errorf("the driver died before it was ready: %w", l.child.err)
	case <-l.caller.Done():
		return l.exitedOr(fmt.Errorf("the driver's supervision link failed before it was ready: %w", l.caller.Err()))
	case <-l.grantsDone:
		return l.exitedOr(fmt.Errorf("the driver's grant link ended before it was ready: %w", orClosed(l.grantsErr)))
	case err := <-l.failure.cause:
		return err
	case <-timer.C:
		return fmt.Errorf("the driver was not ready after %v", d.cfg.ReadyTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// driverOver publishes that the driver has ended.
func (d *device) driverOver(ctx context.Context, err error) error {
	if isRemoved(d.function) { // perhaps seen while the driver was becoming ready
		d.showRemoved(d.removal())
	}
	if ctx.Err() == nil && !isRemoved(d.function) {
		// Published at once, before the process is reaped and its memory scrubbed.
		d.board.update(func(s *snapshot) { s.state, s.link, s.cause = recovering, nil, clipped(err.Error()) })
	}
	return err
}

func (d *device) epochLimits() ledger.Limits {
	l := ledger.NoLimits()
	l[ledger.DeviceMemory] = d.policy.MemoryBytes
	l[ledger.IOVAEntries] = limitOf(d.account, ledger.IOVAEntries)
	return l
}
