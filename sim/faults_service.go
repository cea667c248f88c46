package sim

import (
	"context"
	"sync"
	"time"

	"capgpu/gpu"
	"capgpu/ledger"
)

// driverKilled: now, or at a labelled point of the next one.
func (w *world) driverKilled() {
	w.mu.Lock()
	d := w.driver
	points := []string{"", "", "driver.start", "driver.open.before-ready", "driver.ready", "driver.attach.begun", "driver.attach.before-reply"}
	at := points[w.rand.IntN(len(points))]
	w.dieAt = at
	if at != "" {
		w.budgeted = true // deaths before Ready spend the budget
	}
	w.mu.Unlock()
	if d == nil || d.gone() {
		return
	}
	w.trace("kill driver %s", at)
	w.hit(DriverKilled)
	d.Kill()
}

// driverStopped: its process stands still; some seconds later the manager knows.
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
		w.mu.Lock()
		w.memoryOut = 1 + w.rand.IntN(3)
		w.mu.Unlock()
		w.trace("no memory")
		return
	}
	w.trace("disk full")
	w.hit(Exhaustion)
	w.audit.setFull(true)
	w.openSession()
	w.settle()
	time.Sleep(time.Duration(1+w.rand.IntN(100)) * time.Millisecond)
	w.audit.setFull(false)
}

// wakesDelayed: wakes take their time, for a while.
func (w *world) wakesDelayed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lateness > 0 {
		w.lateness = 0
		return
	}
	w.lateness = time.Duration(1+w.rand.IntN(5000)) * time.Microsecond
}

// clockJump: the machine was asleep; all that was to happen meanwhile is late.
func (w *world) clockJump() {
	d := time.Duration(1+w.rand.IntN(48)) * time.Minute
	w.trace("jump %v", d)
	w.hit(ClockJump)
	time.Sleep(d)
}

// managerCrash: device-manager dies, perhaps while it replaces a driver, which dies with
// it; and is started again.
func (w *world) managerCrash() {
	if w.rand.IntN(3) > 0 && !w.function.isRemoved() {
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
	w.crashed++
	w.budgeted = false
	w.mu.Lock()
	w.dieAt, w.memoryOut = "", 0
	w.mu.Unlock()
	w.open()
}

// closeStage ends a manager as a crash does: nobody is asked to shut down.
func (w *world) closeStage() {
	for _, t := range w.tenants {
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
	if err := w.stage.Close(ctx); err != nil && !w.function.isRemoved() {
		w.violate("the manager does not come to zero: %v", err)
	}
	if d != nil {
		<-d.torn
	}
}

// revokeRace: a session is closed while it is restricted, made use of and closed again. Who
// comes first is not traced: it is nobody's to say.
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
