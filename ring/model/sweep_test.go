package model

// sweepVars are what a driver has whose ring is also watched: Server.Watch and Resign, and
// gpu/sweep.go.
type sweepVars struct {
	served, takeMu own  // locks: 1 is locked, and of the first one free
	watched        own  // Server.watched, under takeMu
	swept, roused  own  // queue.sweep, under serving
	rouse          pipe // ends WaitWork
}

// newSweptDriver is a driver that serves and sleeps, as newDriver, and a sweeper that
// watches and serves while the driver sleeps, until it resigns for good.
func newSweptDriver(m *machine, w *wires) {
	v := &sweepVars{
		served: m.own("serving is free"), takeMu: m.own("takeMu"), watched: m.own("watched"),
		swept: m.own("swept"), roused: m.own("roused"), rouse: m.pipe("rouse"),
	}
	newSleeper(m, w, v)
	newSweeper(m, w, v)
}

// set waits until l is not v, and makes it v.
func set(t *thread, name string, l own, v uint8) {
	t.step(name, func(x *ctx) {
		if x.fence() && x.s.own[l] == v {
			x.block()
		} else if !x.blocked {
			x.s.own[l] = v
		}
	})
}

func (v *sweepVars) lock(t *thread)   { set(t, "lock takeMu", v.takeMu, 1) }
func (v *sweepVars) unlock(t *thread) { set(t, "unlock takeMu", v.takeMu, 0) }

// serve and sleep take and give the lock that the driver has at the beginning.
func (v *sweepVars) serve(t *thread) { set(t, "lock serving", v.served, 0) }
func (v *sweepVars) sleep(t *thread) { set(t, "unlock serving", v.served, 1) }

// newSleeper is runQueue: serve, and sleepOnRing with the lock given away.
func newSleeper(m *machine, w *wires, v *sweepVars) {
	t := m.thread("driver", true)
	bug := w.cfg.mistake
	head, early := t.reg("cqHead"), t.reg("early")
	var top, take, took, none, arm, look, entries, completions, sleep, clear, awaken, drainEntries, drainCompletions label
	t.place(&top)
	t.place(&take)
	w.take(t, head, early, &took, &none, &none)
	t.place(&took)
	w.giveBack(t)
	w.complete(t)
	w.flushDone(t, early)
	t.goTo(&take)
	t.place(&none)
	v.sleep(t)

	t.place(&arm) // WaitWork
	v.lock(t)
	t.place(&look)
	w.look(t, head, &clear, &drainEntries, &drainCompletions)
	w.drains(t, &drainEntries, &entries, &drainCompletions, &completions)
	t.place(&entries)
	t.local("arm: does somebody watch", func(x *ctx) {
		if x.s.own[v.watched] != 0 && bug != armsWhileWatched {
			x.jump(&sleep)
		}
	})
	t.step("arm: wait for entries", func(x *ctx) { x.swap(w.sqWait, waitEntries) })
	w.look(t, head, &clear, &sleep, &completions)
	t.place(&completions)
	t.step("arm: wait for completions", func(x *ctx) {
		if x.swap(w.sqWait, waitCompletions); !x.blocked {
			x.s.own[v.watched] = 0
		}
	})
	w.look(t, head, &clear, &entries, &sleep)
	t.place(&sleep)
	v.unlock(t)
	t.sleep("WaitWork: sleep", func(x *ctx) {
		if !x.fence() {
			return
		}
		var ready []func()
		if x.s.pipe[w.work] != 0 {
			ready = append(ready, func() { x.slept(w.work, false) }, func() { x.slept(w.work, true) })
		}
		if x.s.pipe[v.rouse] != 0 {
			ready = append(ready, func() {
				x.woken(v.rouse)
				x.jump(&awaken)
			})
		}
		if len(ready) == 0 {
			x.block()
			return
		}
		ready[x.choose(len(ready))]()
	})
	v.lock(t)
	t.local("WaitWork: disarm", func(x *ctx) {
		if x.store(w.sqWait, awake); !x.blocked {
			x.jump(&look)
		}
	})
	t.place(&clear)
	t.local("arm: there is work", func(x *ctx) {
		if x.store(w.sqWait, awake); !x.blocked {
			x.s.own[v.watched] = 0
		}
	})
	v.unlock(t)
	t.place(&awaken)
	v.serve(t)
	v.lock(t)
	t.local("unsweep", func(x *ctx) {
		if x.store(w.sqWait, awake); x.blocked { // WaitWork: disarm, of one that was roused
			return
		}
		if bug != sweptNotUnwatched {
			x.s.own[v.watched] = 0
		}
		x.s.own[v.swept], x.s.own[v.roused] = 0, 0
	})
	v.unlock(t)
	t.goTo(&top)
}

// newSweeper visits the ring again and again, and at last releases it.
func newSweeper(m *machine, w *wires, v *sweepVars) {
	t := m.thread("sweeper", true)
	bug := w.cfg.mistake
	head, early := t.reg("cqHead"), t.reg("early")
	var top, visit, ready, nothing, full, take, took, none, rouse, leave, resign, rest, left, bye label
	tryLock := func(held *label) {
		t.step("try to lock serving", func(x *ctx) {
			if x.touch(); x.s.own[v.served] == 0 {
				x.jump(held)
				return
			}
			x.s.own[v.served] = 0
		})
	}
	watch := func(x *ctx) {
		if x.s.own[v.watched] == 0 && bug != watchLeavesFlag {
			x.store(w.sqWait, awake)
		}
		if !x.blocked {
			x.s.own[v.watched], x.s.own[v.swept] = 1, 1
		}
	}
	t.place(&top)
	t.local("sweep on?", func(x *ctx) {
		if x.choose(2) == 1 {
			x.jump(&resign)
		}
	})
	t.place(&visit)
	tryLock(&top)
	t.local("visit: was it roused", func(x *ctx) {
		if x.s.own[v.roused] != 0 {
			x.jump(&leave)
		}
	})
	v.lock(t)
	w.look(t, head, &ready, &nothing, &full)
	t.place(&nothing)
	t.local("Watch: nothing", watch)
	v.unlock(t)
	t.goTo(&leave)
	t.place(&full)
	v.unlock(t)
	t.local("visit: full", func(x *ctx) {
		if x.jump(&rouse); x.s.own[v.swept] == 0 || bug == sweptFullForgotten {
			x.jump(&leave)
		}
	})
	t.place(&ready)
	t.local("Watch: entries", watch)
	v.unlock(t)

	t.place(&take) // a turn
	v.lock(t)
	w.take(t, head, early, &took, &none, &none)
	t.place(&took)
	w.giveBack(t)
	v.unlock(t)
	w.complete(t)
	w.flushDone(t, early)
	t.local("turn: is something left", func(x *ctx) {
		if x.choose(2) == 1 {
			x.jump(&rouse)
		}
	})
	t.goTo(&take)
	t.place(&none)
	v.unlock(t)
	t.goTo(&leave)
	t.place(&rouse)
	t.step("rouse", func(x *ctx) {
		if x.signal(v.rouse); !x.blocked {
			x.s.own[v.roused] = 1
		}
	})
	t.place(&leave)
	v.sleep(t)
	t.goTo(&top)

	t.place(&resign)
	if bug == sweepsNoMore {
		t.goTo(&bye)
	}
	tryLock(&bye)
	t.local("release: is it watched", func(x *ctx) {
		if x.s.own[v.swept] == 0 {
			x.jump(&left)
		}
	})
	v.lock(t)
	t.local("Resign: is it watched still", func(x *ctx) {
		if x.s.own[v.swept] = 0; x.s.own[v.watched] == 0 {
			x.jump(&rest)
		}
	})
	t.step("Resign: arm", func(x *ctx) {
		if bug == resignWithoutFence {
			x.store(w.sqWait, waitEntries)
		} else {
			x.swap(w.sqWait, waitEntries)
		}
		if !x.blocked {
			x.s.own[v.watched] = 0
		}
	})
	if bug != resignLooksNotAgain {
		var late label
		w.look(t, head, &late, &rest, &late)
		t.place(&late)
		t.local("Resign: there is something", func(x *ctx) { x.store(w.sqWait, awake) })
		v.unlock(t)
		if bug != sweptRestForgotten {
			t.step("release: rouse", func(x *ctx) { x.signal(v.rouse) })
		}
		t.goTo(&left)
	}
	t.place(&rest)
	v.unlock(t)
	t.place(&left)
	v.sleep(t)
	t.place(&bye)
}
