package model

// queueVars are what a queue of package gpu has besides its ring.
type queueVars struct {
	sent            word // jobs given to the engine
	ended, sleeping word // jobs that ended; the queue's goroutine wants to be woken
	wake, arm, rang pipe // channels of capacity 1, of one value
	stop, armed     own  // the doorbell's context has ended; it has the submission side
}

// newQueue is the driver of package gpu: runQueue, runDoorbell, and an engine with a
// device that ends jobs in order.
func newQueue(m *machine, w *wires) {
	q := &queueVars{
		sent: m.word("sent", false), ended: m.word("ended", false), sleeping: m.word("sleeping", false),
		wake: m.pipe("wake"), arm: m.pipe("arm"), rang: m.pipe("rang"),
		stop: m.own("stop"), armed: m.own("armed"),
	}
	newRunQueue(m, w, q)
	newDoorbell(m, w, q)
	newDevice(m, q)
}

// newRunQueue is queue.serve, and rest.
func newRunQueue(m *machine, w *wires, q *queueVars) {
	t := m.thread("queue", true)
	head, early, ended := t.reg("cqHead"), t.reg("early"), t.reg("ended")
	worked, sent := t.reg("worked"), t.reg("sentUntil")
	var top, retired, take, took, taken, wait, bye label
	bug := w.cfg.mistake

	t.place(&top)
	if w.cfg.closes {
		t.local("close?", func(x *ctx) {
			if x.choose(2) == 1 {
				x.jump(&bye)
			}
		})
	}
	t.step("retire: look at the jobs", func(x *ctx) { x.set(ended, x.load(q.ended)) })
	var next label
	t.place(&next)
	t.local("retire: next", func(x *ctx) {
		if x.get(ended) <= x.s.own[w.completed] {
			x.jump(&retired)
			return
		}
		x.set(worked, 1)
	})
	w.complete(t)
	t.goTo(&next)
	t.place(&retired)
	t.local("take: may it", func(x *ctx) {
		x.set(ended, 0)
		if x.s.own[q.armed] != 0 {
			x.jump(&taken)
		}
	})
	t.place(&take)
	t.local("take: is there a free job", func(x *ctx) {
		if x.s.own[w.taken]-x.s.own[w.completed] >= w.cfg.entries {
			x.jump(&taken)
		}
	})
	w.take(t, head, early, &took, &taken, &taken)
	t.place(&took)
	t.goTo(&take)
	t.place(&taken)
	t.local("take: was there something", func(x *ctx) {
		if x.s.own[w.taken] == x.get(sent) {
			x.jump(&wait)
		}
	})
	w.giveBack(t)
	t.step("enqueue", func(x *ctx) {
		if x.swap(q.sent, x.s.own[w.taken]); !x.blocked {
			x.set(sent, x.s.own[w.taken])
			x.set(worked, 1)
		}
	})
	t.place(&wait)
	w.flushDone(t, early)
	t.local("is there more to do", func(x *ctx) {
		if x.get(worked) != 0 {
			x.set(worked, 0)
			x.jump(&top)
		}
	})
	if w.cfg.spin {
		t.local("look again?", func(x *ctx) {
			if x.choose(2) == 1 {
				x.jump(&top)
			}
		})
	}

	var rest, awaken label
	t.step("rest: say so", func(x *ctx) {
		if bug == restWithoutFence {
			x.store(q.sleeping, 1)
		} else {
			x.swap(q.sleeping, 1)
		}
	})
	if bug != restLooksNotAgain {
		t.step("rest: look at the first job", func(x *ctx) {
			if x.load(q.ended) > x.s.own[w.completed] {
				x.jump(&awaken)
			}
		})
	}
	t.local("rest: arm the doorbell?", func(x *ctx) {
		if x.s.own[q.armed] != 0 || x.s.own[w.taken]-x.s.own[w.completed] >= w.cfg.entries {
			x.jump(&rest)
		}
	})
	t.step("rest: arm the doorbell", func(x *ctx) {
		if x.signal(q.arm); !x.blocked {
			x.s.own[q.armed] = 1
		}
	})
	t.place(&rest)
	t.sleep("rest: sleep", func(x *ctx) {
		x.jump(&awaken)
		if !x.fence() {
			return
		}
		// A select: any of those that are ready.
		var ready []func()
		if x.s.pipe[q.wake] != 0 {
			ready = append(ready, func() { x.woken(q.wake) })
		}
		if x.s.pipe[q.rang] != 0 {
			ready = append(ready, func() {
				x.woken(q.rang)
				x.s.own[q.armed] = 0
			})
		}
		if w.cfg.closes {
			ready = append(ready, func() { x.jump(&bye) })
		}
		if len(ready) == 0 {
			x.block()
			return
		}
		ready[x.choose(len(ready))]()
	})
	t.place(&awaken)
	t.local("rest: no more", func(x *ctx) {
		if x.store(q.sleeping, 0); !x.blocked {
			x.jump(&top)
		}
	})
	if w.cfg.closes {
		t.place(&bye)
		t.step("stop the doorbell", func(x *ctx) {
			if x.fence() {
				x.s.own[q.stop] = 1
			}
		})
		t.step("wait for the doorbell", func(x *ctx) {
			x.touch()
			if x.s.own[q.armed] != 0 && !x.woken(q.rang) {
				x.block()
				return
			}
			x.s.own[q.armed] = 0
		})
		w.close(t)
	}
}

// newDoorbell is runDoorbell: WaitWork whenever it is asked to.
func newDoorbell(m *machine, w *wires, q *queueVars) {
	t := m.thread("doorbell", true)
	head := t.reg("cqHead")
	var top, ring, end label
	t.place(&top)
	stopped := func(s *state) bool { return s.own[q.stop] != 0 }
	t.sleep("wait to be armed", func(x *ctx) {
		x.touch()
		switch {
		case x.woken(q.arm):
		case stopped(x.s):
			x.jump(&end)
		default:
			x.block()
		}
	})
	w.waitWork(t, head, stopped, &ring)
	t.place(&ring)
	t.step("ring", func(x *ctx) {
		if x.signal(q.rang); !x.blocked {
			x.jump(&top)
		}
	})
	t.place(&end)
}

// newDevice ends one job after the other, and kicks the queue.
func newDevice(m *machine, q *queueVars) {
	t := m.thread("device", true)
	var top label
	t.place(&top)
	t.sleep("end a job", func(x *ctx) {
		x.touch()
		if x.s.mem[q.sent] == x.s.mem[q.ended] {
			x.block()
			return
		}
		x.s.mem[q.ended]++
		x.say("job %d has ended", x.s.mem[q.ended])
	})
	t.step("kick: does the queue sleep", func(x *ctx) {
		if x.load(q.sleeping) == 0 {
			x.jump(&top)
		}
	})
	t.step("kick: wake it", func(x *ctx) {
		x.signal(q.wake)
		x.jump(&top)
	})
}
