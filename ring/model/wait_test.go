package model

// poll is Client.poll.
func (w *wires) poll(t *thread, v *clientVars, arm bool, some, none, closed *label) {
	var copied, nothing, ended label
	bug := w.cfg.mistake
	if arm {
		t.step("poll: arm", func(x *ctx) {
			if bug == clientArmWithoutFence {
				x.store(w.cqWait, waitEntries)
			} else {
				x.swap(w.cqWait, waitEntries)
			}
		})
		if bug == clientLooksNotAgain {
			t.goTo(none)
			return
		}
	}
	var copyNext label
	t.local("poll: what is known", func(x *ctx) {
		x.set(v.n, 0)
		if x.s.own[w.polled] != x.get(v.seenTail) {
			x.jump(&copyNext)
		}
	})
	hoisted := bug == clientReadsSlotFirst
	if hoisted {
		t.step("poll: read the slot too early", func(x *ctx) { x.set(v.n, x.load(w.cqWord(x.s.own[w.polled], 0))) })
	}
	loadState := func() {
		t.step("poll: look at state", func(x *ctx) { x.set(v.state, x.load(w.state)) })
	}
	if bug != stateReadLast {
		loadState()
	}
	t.step("poll: look at cqTail", func(x *ctx) {
		tail := x.load(w.cqTail)
		x.set(v.seenTail, tail)
		if tail-x.s.own[w.polled] > w.completions {
			x.fail(propAccused, "the client finds cqTail = %d with %d taken", tail, x.s.own[w.polled])
		}
	})
	if w.cfg.duplex {
		t.step("poll: is cqTail within submitted", func(x *ctx) {
			if submitted := x.load(w.submitted); x.get(v.seenTail) > submitted {
				x.fail(propAccused, "the client finds cqTail = %d of %d submitted", x.get(v.seenTail), submitted)
			}
		})
	}
	if bug == stateReadLast {
		loadState()
	}
	t.local("poll: is there something", func(x *ctx) {
		state := x.get(v.state)
		x.set(v.state, 0)
		if x.get(v.seenTail) != x.s.own[w.polled] {
			return
		}
		x.set(v.n, 0)
		x.jump(&nothing)
		if state != 0 {
			if x.s.own[w.completed] != x.s.own[w.polled] {
				x.fail(propClose, "%d were completed, and the client is told of the close after %d", x.s.own[w.completed], x.s.own[w.polled])
			}
			x.jump(&ended)
		}
	})
	if hoisted {
		t.local("poll: use what was read", func(x *ctx) {
			w.read(x, "completion", x.get(v.n), x.s.own[w.polled])
			x.set(v.n, 0)
		})
	}
	t.place(&copyNext)
	if bug == cqHeadBeforeCopy {
		t.step("poll: give the slot back too early", func(x *ctx) { x.swap(w.cqHead, x.s.own[w.polled]+1) })
	}
	w.copyOut(t, "completion", w.polled, w.cqWord, func(x *ctx) {
		x.set(v.n, x.get(v.n)+1)
		if x.get(v.n) < w.cfg.pollMax && x.s.own[w.polled] != x.get(v.seenTail) {
			x.jump(&copyNext)
		}
	})
	t.goTo(&copied)

	t.place(&ended)
	t.local("poll: closed", func(x *ctx) {
		if arm {
			x.store(w.cqWait, awake)
		}
		if !x.blocked {
			x.jump(closed)
		}
	})
	t.place(&nothing)
	t.goTo(none)
	t.place(&copied)
	if arm && bug != clientStaysArmed {
		t.local("poll: disarm", func(x *ctx) { x.store(w.cqWait, awake) })
	}
	if bug != cqHeadBeforeCopy {
		t.step("poll: give the slots back", func(x *ctx) {
			if bug == cqHeadWithoutFence {
				x.store(w.cqHead, x.s.own[w.polled])
			} else {
				x.swap(w.cqHead, x.s.own[w.polled])
			}
			if !x.blocked {
				x.set(v.n, 0)
			}
		})
	}
	what := uint8(waitCompletions)
	if bug == clientAsksWrong {
		what = waitEntries
	}
	if w.bell != nil {
		w.askBell(t, some)
		return
	}
	w.ask(t, w.sqWait, what, w.work, some)
}

// wait is Client.Wait.
func (w *wires) wait(t *thread, v *clientVars, some, closed *label) {
	var again, arm, sleep, awoken label
	t.place(&again)
	w.poll(t, v, false, some, &arm, closed)
	t.place(&arm)
	if w.cfg.spin {
		t.local("Wait: look again?", func(x *ctx) {
			if x.choose(2) == 1 {
				x.jump(&again)
			}
		})
	}
	w.poll(t, v, true, some, &sleep, closed)
	t.place(&sleep)
	if w.cfg.mistake == drainsBeforeSleep {
		t.step("Wait: empty the pipe", func(x *ctx) {
			x.touch()
			x.woken(w.done)
		})
	}
	t.sleep("Wait: sleep", func(x *ctx) {
		x.jump(&again)
		if x.get(v.timeout) < w.cfg.timeout && x.choose(2) == 1 {
			x.touch()
			x.set(v.timeout, x.get(v.timeout)+1)
			x.jump(&awoken)
			return
		}
		x.wait(w.done)
	})
	if w.cfg.timeout == 0 {
		return
	}
	var last label
	t.place(&awoken)
	w.poll(t, v, true, some, &last, closed)
	t.place(&last)
	t.local("Wait: disarm and give up", func(x *ctx) {
		x.store(w.cqWait, awake)
		x.jump(&again) // the caller waits again
	})
}
