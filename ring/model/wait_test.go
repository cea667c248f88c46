package model

// poll is Client.poll.
func (w *wires) poll(t *thread, v *clientVars, arm bool, some, none, closed *label) {
	var copied, nothing, ended label
	bug := w.cfg.mistake
	if arm {
		if bug != drainsAfterArming {
			t.step("poll: drain", func(x *ctx) { x.drain(w.done) })
		}
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
	var next, found, more label
	if arm && bug == drainsAfterArming {
		t.step("poll: drain", func(x *ctx) { x.drain(w.done) })
	}
	t.local("poll: begin", func(x *ctx) { x.set(v.n, 0) })
	// isThere reads the word at the next position.
	isThere := func(x *ctx) bool {
		pos := x.s.own[w.polled]
		before := uint8(0) // of the lap before
		if pos >= w.completions {
			before = pos + 1 - w.completions
		}
		word := x.load(w.cqWord(pos, 0))
		if word == before && (bug != lapNotChecked || word == 0) {
			return false
		}
		w.read(x, "completion", word, pos)
		return true
	}
	t.place(&next)
	hoisted := bug == clientReadsRecordFirst
	early := uint8(0)
	if hoisted {
		early = w.cfg.slotWords - 1
		t.step("poll: read the record too early", func(x *ctx) { x.set(v.state, x.load(w.cqWord(x.s.own[w.polled], early))) })
	}
	t.step("poll: look at the next word", func(x *ctx) {
		if !isThere(x) {
			x.jump(&more)
		}
	})
	t.place(&found)
	if w.cfg.duplex {
		t.step("poll: is it of what was submitted", func(x *ctx) {
			if submitted := x.load(w.submitted); x.s.own[w.polled] >= submitted {
				x.fail(propAccused, "the client finds completion %d of %d submitted", x.s.own[w.polled]+1, submitted)
			}
		})
	}
	if hoisted {
		t.local("poll: use what was read", func(x *ctx) {
			w.read(x, "completion", x.get(v.state), x.s.own[w.polled])
			x.set(v.state, 0)
		})
	}
	if bug == cqHeadBeforeCopy {
		t.step("poll: give the slot back too early", func(x *ctx) { x.swap(w.cqHead, x.s.own[w.polled]+1) })
	}
	w.copyOut(t, "completion", w.polled, w.cqWord, 1, func(x *ctx) {
		x.set(v.n, x.get(v.n)+1)
		if x.get(v.n) < w.cfg.pollMax {
			x.jump(&next)
		}
	})
	t.goTo(&copied)
	t.place(&more)
	t.local("poll: is there something", func(x *ctx) {
		if hoisted {
			x.set(v.state, 0)
		}
		if x.get(v.n) != 0 {
			x.jump(&copied)
		}
	})
	t.step("poll: look at state", func(x *ctx) {
		if x.load(w.state) == 0 {
			x.jump(&nothing)
		}
	})
	if bug != stateNotDoubted {
		t.step("poll: look at the next word again", func(x *ctx) {
			if isThere(x) {
				x.jump(&found)
			}
		})
	}
	t.local("poll: it has ended", func(x *ctx) {
		if x.s.own[w.completed] != x.s.own[w.polled] {
			x.fail(propClose, "%d were completed, and the client is told of the close after %d", x.s.own[w.completed], x.s.own[w.polled])
		}
		x.jump(&ended)
	})

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
		ways := 2
		if x.get(v.timeout) < w.cfg.timeout {
			ways = 3
		}
		way := x.choose(ways)
		if way == 2 {
			x.touch()
			x.set(v.timeout, x.get(v.timeout)+1)
			x.jump(&awoken)
			return
		}
		if x.fence() && !x.slept(w.done, way == 1) && x.s.pipe[w.done]&eof == 0 {
			x.block()
		}
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
