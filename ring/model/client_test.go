package model

// clientVars are the fields of ring.Client that its threads have for themselves.
type clientVars struct {
	pushed, seenHead, flushed reg // Push and Flush
	n, state, timeout         reg // Poll and Wait
}

func pushVars(t *thread, v *clientVars) {
	v.pushed, v.seenHead, v.flushed = t.reg("pushed"), t.reg("seenHead"), t.reg("submitted")
}

func pollVars(t *thread, v *clientVars) {
	v.n, v.state, v.timeout = t.reg("n"), t.reg("state"), t.reg("timeouts")
}

// push is Client.Push: it goes to full when there is no room, or, when there is
// none to go to, waits for room and goes to closed if the ring is closed first.
func (w *wires) push(t *thread, v *clientVars, full, closed *label) {
	var write label
	hasRoom := func(x *ctx) bool {
		used := x.get(v.pushed) - x.get(v.seenHead)
		return used < w.cfg.entries || w.cfg.mistake == fullTooLate && used == w.cfg.entries
	}
	t.local("Push: is there room", func(x *ctx) {
		if hasRoom(x) {
			x.jump(&write)
		}
	})
	t.step("Push: look at sqHead", func(x *ctx) {
		if full == nil && x.s.mem[w.sqHead] == x.get(v.seenHead) {
			x.touch()
			if x.jump(closed); x.s.mem[w.state] == 0 {
				x.block()
			}
			return
		}
		head := x.load(w.sqHead)
		if head < x.get(v.seenHead) || head > x.get(v.flushed) {
			x.fail(propAccused, "the client finds sqHead = %d, after %d, of %d submitted", head, x.get(v.seenHead), x.get(v.flushed))
		}
		x.set(v.seenHead, head)
		if full != nil && !hasRoom(x) {
			x.jump(full)
		}
	})
	t.place(&write)
	words := w.cfg.slotWords
	writeSlot := func(first, last uint8) {
		for i := first; i < last; i++ {
			t.local("Push: write word "+digit(i), func(x *ctx) {
				w.write(x, w.sqWord, x.get(v.pushed), i, w.sqHead, w.cfg.entries)
				if i == words-1 && !x.blocked {
					x.set(v.pushed, x.get(v.pushed)+1)
				}
			})
		}
	}
	switch w.cfg.mistake {
	case tailBeforeSlot, tornSlot:
		first := uint8(0)
		if w.cfg.mistake == tornSlot {
			first = words - 1
		}
		writeSlot(0, first)
		t.step("Push: publish too early", func(x *ctx) { x.swap(w.sqTail, x.get(v.pushed)+1) })
		writeSlot(first, words)
	default:
		writeSlot(0, words)
	}
}

// flush is Client.Flush.
func (w *wires) flush(t *thread, v *clientVars) {
	var done, look label
	t.local("Flush: is there something", func(x *ctx) {
		if x.get(v.flushed) == x.get(v.pushed) {
			x.jump(&done)
		}
	})
	if w.cfg.mistake == signalBeforePublish {
		w.ask(t, w.sqWait, waitEntries, w.work, &look)
		t.place(&look)
	}
	submit := func() {
		if w.cfg.duplex { // else nobody but this thread looks
			t.local("Flush: submitted", func(x *ctx) { x.store(w.submitted, x.get(v.pushed)) })
		}
	}
	if w.cfg.mistake != submittedTooLate {
		submit()
	}
	var asked label
	if w.cfg.mistake == clientLooksFirst {
		t.step("Flush: look before publishing", func(x *ctx) { x.set(v.flushed, x.load(w.sqWait)) })
	}
	t.step("Flush: publish", func(x *ctx) {
		if w.cfg.mistake == submitWithoutFence || w.cfg.mistake == tailNotReleased {
			x.store(w.sqTail, x.get(v.pushed))
		} else {
			x.swap(w.sqTail, x.get(v.pushed))
		}
		if x.blocked {
			return
		}
		looked := x.get(v.flushed)
		x.set(v.flushed, x.get(v.pushed))
		if w.cfg.mistake == clientLooksFirst {
			x.jump(&done)
			if looked == waitEntries {
				x.jump(&asked)
			}
		}
	})
	if w.cfg.mistake == submittedTooLate {
		submit()
	}
	if w.cfg.mistake == tailNotReleased {
		t.step("Flush: a fence", func(x *ctx) { x.fence() })
	}
	if w.cfg.mistake != signalBeforePublish {
		w.ask(t, w.sqWait, waitEntries, w.work, &done)
	}
	if w.cfg.mistake == clientLooksFirst {
		t.place(&asked)
		t.step("Flush: clear and wake", func(x *ctx) { x.swap(w.sqWait, awake) })
		t.step("Flush: signal", func(x *ctx) { x.signal(w.work) })
	}
	t.place(&done)
}

// ask is what a side does that has published: look whether the other one sleeps for this,
// take the question away, wake.
func (w *wires) ask(t *thread, flag word, what uint8, p pipe, done *label) {
	bug := w.cfg.mistake
	if bug == extraWake {
		t.step("wake, asked or not", func(x *ctx) { x.signal(p) })
		t.goTo(done)
		return
	}
	t.step("look at the wait flag", func(x *ctx) {
		if x.load(flag) != what {
			x.jump(done)
		}
	})
	switch bug {
	case flagLeftSet:
	case clearedAfterSignal:
		t.step("signal", func(x *ctx) { x.signal(p) })
		t.local("clear the wait flag", func(x *ctx) { x.store(flag, awake) })
		t.goTo(done)
		return
	case storeForCAS:
		t.local("clear the wait flag", func(x *ctx) { x.store(flag, awake) })
	default:
		t.step("clear the wait flag", func(x *ctx) {
			if !x.cas(flag, what, awake) && !x.blocked {
				x.jump(done)
			}
		})
	}
	t.step("signal", func(x *ctx) { x.signal(p) })
	t.goTo(done)
}

// newClient has one thread: push, flush, and wait for completions when there is no
// room or no more to push.
func newClient(m *machine, w *wires) {
	t := m.thread("client", false)
	var v clientVars
	pushVars(t, &v)
	if !w.cfg.awakeClient {
		pollVars(t, &v)
	}
	var top, again, flush, full, wait, end label
	t.place(&top)
	t.local("push or flush?", func(x *ctx) {
		pushed, polled := x.get(v.pushed), x.s.own[w.polled]
		switch {
		case polled == w.cfg.submissions:
			x.jump(&end)
		case pushed == w.cfg.submissions, pushed > polled && x.choose(2) == 1:
			x.jump(&flush)
		}
	})
	t.place(&again)
	w.push(t, &v, &full, nil)
	t.goTo(&top)
	t.place(&flush)
	w.flush(t, &v)
	t.local("push more?", func(x *ctx) {
		if x.get(v.pushed) < w.cfg.submissions && x.choose(2) == 1 {
			x.jump(&again)
			return
		}
		x.jump(&wait)
	})
	t.place(&full)
	w.flush(t, &v)
	t.place(&wait)
	if w.cfg.awakeClient {
		w.spinForOne(t, &top)
	} else {
		w.wait(t, &v, &top, &end)
	}
	t.place(&end)
}

// spinForOne takes a completion, without sleeping.
func (w *wires) spinForOne(t *thread, some *label) {
	t.step("wait for the next word", func(x *ctx) {
		at := w.cqWord(x.s.own[w.polled], 0)
		if x.s.mem[at] != x.s.own[w.polled]+1 {
			x.touch()
			x.block()
			return
		}
		x.load(at)
	})
	w.copyOut(t, "completion", w.polled, w.cqWord, 1, func(*ctx) {})
	t.step("give the slot back", func(x *ctx) { x.swap(w.cqHead, x.s.own[w.polled]) })
	w.ask(t, w.sqWait, waitCompletions, w.work, some)
}

// newSubmitter pushes and flushes.
func newSubmitter(m *machine, w *wires) {
	t := m.thread("submitter", false)
	var v clientVars
	pushVars(t, &v)
	var top, flush, end label
	t.place(&top)
	t.local("push or flush?", func(x *ctx) {
		switch {
		case x.get(v.pushed) == w.cfg.submissions, x.get(v.pushed)-x.get(v.flushed) == w.cfg.entries:
			x.jump(&flush)
		case x.get(v.pushed) > x.get(v.flushed) && x.choose(2) == 1:
			x.jump(&flush)
		}
	})
	w.push(t, &v, nil, &end)
	t.goTo(&top)
	t.place(&flush)
	w.flush(t, &v)
	t.local("more?", func(x *ctx) {
		x.jump(&top)
		if x.get(v.flushed) == w.cfg.submissions {
			x.jump(&end)
		}
	})
	t.place(&end)
}

// newPoller waits for all completions.
func newPoller(m *machine, w *wires) {
	t := m.thread("poller", false)
	var v clientVars
	pollVars(t, &v)
	var top, end label
	t.place(&top)
	t.local("more?", func(x *ctx) {
		if x.s.own[w.polled] == w.cfg.submissions {
			x.jump(&end)
		}
	})
	w.wait(t, &v, &top, &end)
	t.place(&end)
}
