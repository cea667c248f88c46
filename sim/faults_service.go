package sim

import (
	"context"
	"sync"
	"time"

	"capgpu/gpu"
	"capgpu/ledger"
)

// driverKilled: now, or at a labelled point of the next driver.
func (w *world) driverKilled() {
	w.guarded.mu.Lock()
	d := w.guarded.driver
	points := []string{"", "", "driver.start", "driver.open.before-ready", "driver.ready", "driver.attach.begun", "driver.attach.before-reply"}
	at := points[w.rand.IntN(len(points))]
	w.guarded.dieAt = at
	if at != "" {
		w.host.budgeted = true // deaths before Ready spend the budget
	}
	w.guarded.mu.Unlock()
	if d == nil || d.gone() {
		return
	}
	w.trace("kill driver %s", at)
	w.hit(DriverKilled)
	d.Kill()
}

// driverStopped: its process stands still; some seconds later the manager notices.
func (w *world) driverStopped() {
	d := w.current()
	if d == nil || d.gone() {
		return
	}

	d.mu.Lock()
	thaw := d.thaw
	d.thaw = nil
	if thaw == nil {
		d.thaw = make(chan struct{})
	}

	d.mu.Unlock()
	if thaw != nil {
		w.trace("continue driver")
		close(thaw)
		return
	}

	w.trace("stop driver")
	w.hit(DriverStopped)
}

// exhaustion: the host has no memory for a while, or no room for its audit log.
func (w *world) exhaustion() {
	if w.rand.IntN(2) == 0 {
		w.guarded.mu.Lock()
		w.guarded.memoryOut = 1 + w.rand.IntN(3)
		w.guarded.mu.Unlock()
		w.trace("no memory")
		return
	}
	w.trace("disk full")
	w.hit(Exhaustion)
	w.host.audit.setFull(true)
	w.openSession()
	w.settle()
	time.Sleep(time.Duration(1+w.rand.IntN(100)) * time.Millisecond)
	w.host.audit.setFull(false)
}

// wakesDelayed: wakes are late, for a while.
func (w *world) wakesDelayed() {
	w.guarded.mu.Lock()
	defer w.guarded.mu.Unlock()
	if w.guarded.lateness > 0 {
		w.guarded.lateness = 0
		return
	}
	w.guarded.lateness = time.Duration(1+w.rand.IntN(5000)) * time.Microsecond
}

// clockJump: the machine was asleep, so everything that was due meanwhile is late.
func (w *world) clockJump() {
	d := time.Duration(1+w.rand.IntN(48)) * time.Minute
	w.trace("jump %v", d)
	w.hit(ClockJump)
	time.Sleep(d)
}

// managerCrash: device-manager dies, perhaps while it replaces a driver, which dies
// with it; then it is started again.
func (w *world) managerCrash() {
	if w.rand.IntN(3) > 0 && !w.host.function.isRemoved() {
		return
	}

	w.trace("crash manager")
	w.hit(ManagerCrash)
	if w.rand.IntN(2) == 0 {
		d := w.current()
		if d != nil {
			d.Kill()
		}
		time.Sleep(time.Duration(w.rand.IntN(30_000)) * time.Microsecond)
	}

	w.closeStage()
	w.host.crashed++
	w.host.budgeted = false
	w.guarded.mu.Lock()
	w.guarded.dieAt, w.guarded.memoryOut = "", 0
	w.guarded.mu.Unlock()
	w.open()
}

// closeStage ends a manager as a crash does, without asking anybody to shut down.
func (w *world) closeStage() {
	for _, t := range w.clients.tenants {
		if t.conn != nil {
			w.hangUp(t)
		}
	}

	d := w.current()
	if d != nil {
		d.Kill()
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.host.stage.Close(ctx); err != nil && !w.host.function.isRemoved() {
		w.violate("the manager does not come to zero: %v", err)
	}
	if d != nil {
		<-d.torn
	}
}

// revokeRace: a session is closed while it is restricted, used and closed again.
// The winner is not traced, because the outcome is a race.
func (w *world) revokeRace() {
	s := w.session(true)
	if s == nil || s.parent != nil {
		return
	}

	w.hit(ManagerCrash)
	if q := w.queue(s); q != nil {
		for range 4 {
			w.push(q, planGood)
		}
		w.flush(q)
	}

	var racing sync.WaitGroup
	for range 2 {
		racing.Go(func() {
			if child, err := s.real.Restrict(gpu.Policy{Facet: gpu.FacetFull, Limits: ledger.NoLimits()}); err == nil {
				_ = child.Close()
			}
			_, _ = s.real.CreateFence(0)
		})
	}

	w.end(s)
	racing.Wait()
}
