package model

// look is Server.lookLocked: may an entry be taken, or what is there to wait for.
func (w *wires) look(t *thread, head reg, ready, entries, completions *label) {
	var room label
	bug := w.cfg.mistake
	isFull := func(s *state, head uint8) bool {
		most := w.completions
		if bug == completionsFullTooLate {
			most++
		}
		return s.own[w.taken]-head >= most && bug != completionsNeverFull
	}
	t.local("look: what is known", func(x *ctx) {
		if x.s.own[w.taken] != x.s.own[w.seenTail] {
			x.jump(&room)
		}
	})
	t.step("look at sqTail", func(x *ctx) {
		s := x.s
		tail := x.load(w.sqTail)
		if tail-s.own[w.seenTail] > w.cfg.entries || tail-s.own[w.consumed] > w.cfg.entries {
			x.fail(propAccused, "the driver finds sqTail = %d after %d, %d consumed", tail, s.own[w.seenTail], s.own[w.consumed])
		}
		s.own[w.seenTail] = tail
		if s.own[w.taken] == tail {
			x.jump(entries)
		}
	})
	t.place(&room)
	t.local("look: are completions free", func(x *ctx) {
		if !isFull(x.s, x.s.own[w.seenHead]) {
			x.jump(ready)
		}
	})
	t.step("look at cqHead", func(x *ctx) { x.set(head, x.load(w.cqHead)) })
	if w.cfg.service { // else only this thread stores it
		t.step("is cqHead within published", func(x *ctx) {
			if published := x.load(w.published); x.get(head) > published {
				x.fail(propAccused, "the driver finds cqHead = %d of %d published", x.get(head), published)
			}
		})
	}
	t.local("look: are completions free now", func(x *ctx) {
		s := x.s
		s.own[w.seenHead] = x.get(head)
		x.set(head, 0)
		x.jump(ready)
		if isFull(s, s.own[w.seenHead]) {
			x.jump(completions)
		}
	})
}

// take is Server.Take: it goes to took, or to what there is to wait for.
func (w *wires) take(t *thread, head, early reg, took, entries, completions *label) {
	var copyNow label
	bug := w.cfg.mistake
	if bug == driverReadsSlotFirst {
		t.step("Take: read the slot too early", func(x *ctx) { x.set(early, x.load(w.sqWord(x.s.own[w.taken], 0))) })
	}
	w.look(t, head, &copyNow, entries, completions)
	t.place(&copyNow)
	if bug == driverReadsSlotFirst {
		t.local("Take: use what was read", func(x *ctx) {
			w.read(x, "entry", x.get(early), x.s.own[w.taken])
			x.set(early, 0)
		})
	}
	if bug == sqHeadBeforeCopy {
		t.local("Take: give the slot back too early", func(x *ctx) { x.store(w.sqHead, x.s.own[w.taken]+1) })
		t.local("Take: know that it was", func(x *ctx) { x.s.own[w.consumed] = x.s.own[w.taken] + 1 })
	}
	w.copyOut(t, "entry", w.taken, w.sqWord, 0, func(x *ctx) { x.jump(took) })
}

// giveBack is Server.Consumed.
func (w *wires) giveBack(t *thread) {
	var done label
	t.local("Consumed: is there something", func(x *ctx) {
		if x.s.own[w.consumed] == x.s.own[w.taken] {
			x.jump(&done)
		}
	})
	t.local("Consumed: give the slots back", func(x *ctx) {
		if x.store(w.sqHead, x.s.own[w.taken]); !x.blocked {
			x.s.own[w.consumed] = x.s.own[w.taken]
		}
	})
	t.place(&done)
}

// complete is Server.completeLocked: the record, and the word, but that the first which is
// not published is kept back.
func (w *wires) complete(t *thread) {
	words, bug := w.cfg.slotWords, w.cfg.mistake
	if bug == wordBeforeRecord {
		t.step("Complete: publish too early", func(x *ctx) { x.swap(w.cqWord(x.s.own[w.completed], 0), x.s.own[w.completed]+1) })
	}
	for i := uint8(1); i < words; i++ {
		t.local("Complete: write word "+digit(i)+" of the record", func(x *ctx) {
			w.write(x, w.cqWord, x.s.own[w.completed], i, w.cqHead, w.completions)
		})
	}
	if bug == firstWordFirst {
		var kept label
		t.local("Complete: is it the first", func(x *ctx) {
			if x.s.own[w.completed] != x.s.own[w.flushed] {
				x.jump(&kept)
			}
		})
		t.step("Complete: store the first word at once", func(x *ctx) {
			x.swap(w.cqWord(x.s.own[w.completed], 0), x.s.own[w.completed]+1)
		})
		t.place(&kept)
	}
	t.local("Complete: write the word", func(x *ctx) {
		if x.s.own[w.completed] != x.s.own[w.flushed] || bug == firstWordNotKept {
			w.write(x, w.cqWord, x.s.own[w.completed], 0, w.cqHead, w.completions)
		}
		if !x.blocked {
			x.s.own[w.completed]++
		}
	})
}

// publish is Server.publishLocked.
func (w *wires) publish(t *thread, nothing *label) {
	bug := w.cfg.mistake
	t.local("Flush: is there something", func(x *ctx) {
		if x.s.own[w.flushed] == x.s.own[w.completed] {
			x.jump(nothing)
		}
	})
	say := func() {
		if w.cfg.service {
			t.local("Flush: published", func(x *ctx) { x.store(w.published, x.s.own[w.completed]) })
		}
	}
	if bug != publishedTooLate {
		say()
	}
	t.step("Flush: store the first word", func(x *ctx) {
		first := w.cqWord(x.s.own[w.flushed], 0)
		switch bug {
		case completeWithoutFence:
			x.store(first, x.s.own[w.flushed]+1)
		case firstWordFirst:
		default:
			if w.cfg.reduced && x.s.own[w.flushed] >= x.s.mem[w.cqHead]+w.completions {
				x.fail(propSlot, "the word of %d is written for %d before it was given back", x.s.own[w.flushed]+1-w.completions, x.s.own[w.flushed]+1)
			}
			x.swap(first, x.s.own[w.flushed]+1)
		}
		if !x.blocked {
			x.s.own[w.flushed] = x.s.own[w.completed]
		}
	})
	if bug == publishedTooLate {
		say()
	}
}

// flushDone is Server.Flush.
func (w *wires) flushDone(t *thread, looked reg) {
	var done label
	if w.cfg.mistake == driverLooksFirst {
		var clear label
		t.step("Flush: look before publishing", func(x *ctx) { x.set(looked, x.load(w.cqWait)) })
		w.publish(t, &done)
		t.local("Flush: was it asked", func(x *ctx) {
			if x.jump(&done); x.get(looked) == waitEntries {
				x.jump(&clear)
			}
			x.set(looked, 0)
		})
		t.place(&clear)
		t.step("Flush: clear", func(x *ctx) { x.swap(w.cqWait, awake) })
		t.step("Flush: signal", func(x *ctx) { x.signal(w.done) })
	} else {
		w.publish(t, &done)
		if w.cfg.awakeClient {
			t.goTo(&done)
		}
		w.ask(t, w.cqWait, waitEntries, w.done, &done)
	}
	t.place(&done)
	t.local("", func(x *ctx) { x.set(looked, 0) })
}

// arm is Server.Arm: it goes to ready when there is something to take, to armed when the
// client was asked for a wake. drains has it take first what a wait may have left.
func (w *wires) arm(t *thread, head reg, drains bool, ready, armed *label) {
	var entries, completions, clear label
	bug := w.cfg.mistake
	setFlag := func(x *ctx, v uint8) {
		if bug == driverArmWithoutFence {
			x.store(w.sqWait, v)
		} else {
			x.swap(w.sqWait, v)
		}
	}
	if drains {
		var drainEntries, drainCompletions label
		w.look(t, head, &clear, &drainEntries, &drainCompletions)
		w.drains(t, &drainEntries, &entries, &drainCompletions, &completions)
	} else {
		w.look(t, head, &clear, &entries, &completions)
	}
	t.place(&entries)
	t.step("arm: wait for entries", func(x *ctx) { setFlag(x, waitEntries) })
	if bug == driverLooksNotAgain {
		t.goTo(armed)
	} else {
		w.look(t, head, &clear, armed, &completions)
	}
	t.place(&completions)
	t.step("arm: wait for completions", func(x *ctx) {
		if bug == driverArmsWrong {
			setFlag(x, waitEntries)
		} else {
			setFlag(x, waitCompletions)
		}
	})
	w.look(t, head, &clear, &entries, armed)
	t.place(&clear)
	if bug != driverStaysArmed {
		t.local("arm: there is work", func(x *ctx) { x.store(w.sqWait, awake) })
	}
	t.goTo(ready)
}

// disarm is Server.Disarm.
func (w *wires) disarm(t *thread) {
	if w.cfg.mistake != driverStaysArmed {
		t.local("disarm", func(x *ctx) { x.store(w.sqWait, awake) })
	}
}

// waitWork is Server.WaitWork. It goes on when there is work, and to stopped when
// stop says so, which may be nil.
func (w *wires) waitWork(t *thread, head reg, stop func(s *state) bool, stopped *label) {
	var arm, sleep, ready label
	bug := w.cfg.mistake
	t.place(&arm)
	w.arm(t, head, true, &ready, &sleep)
	t.place(&sleep)
	if bug == disarmsBeforeSleep {
		t.local("disarm too early", func(x *ctx) { x.store(w.sqWait, awake) })
	}
	if bug == drainsBeforeSleep {
		t.step("empty the pipe", func(x *ctx) {
			x.touch()
			x.woken(w.work)
		})
	}
	t.sleep("WaitWork: sleep", func(x *ctx) {
		if x.fence() && (stop == nil || !stop(x.s)) && !x.slept(w.work, x.choose(2) == 1) {
			x.block()
		}
	})
	w.disarm(t)
	if stop != nil {
		t.step("WaitWork: stopped?", func(x *ctx) {
			x.touch()
			if stop(x.s) {
				x.jump(stopped)
			}
		})
	}
	t.goTo(&arm)
	t.place(&ready)
}

// drains takes what a wait has left in the submission pipe, before the driver asks for
// entries, or for completions.
func (w *wires) drains(t *thread, beforeEntries, entries, beforeCompletions, completions *label) {
	drain := func(before, then *label) {
		t.place(before)
		t.step("arm: drain", func(x *ctx) {
			x.drain(w.work)
			x.jump(then)
		})
	}
	drain(beforeCompletions, completions)
	drain(beforeEntries, entries)
}

// close is Server.Close.
func (w *wires) close(t *thread) {
	var tell label
	bug := w.cfg.mistake
	end := func() {
		t.step("Close: say why", func(x *ctx) { x.cas(w.state, 0, closingCode) })
	}
	if bug == stateBeforeTail {
		end()
	}
	w.publish(t, &tell)
	t.place(&tell)
	if bug != stateBeforeTail {
		end()
	}
	if bug != closeWithoutSignal {
		t.step("Close: signal", func(x *ctx) { x.signal(w.done) })
	}
	if !w.cfg.noEOF {
		t.step("Close: close the pipe", func(x *ctx) { x.hangUp(w.done) })
	}
}

// newDriver takes, completes and sleeps in one thread.
func newDriver(m *machine, w *wires) {
	t := m.thread("driver", true)
	head, early := t.reg("cqHead"), t.reg("early")
	var top, take, took, none, idle, flush, bye label
	mayClose := func(name string) {
		if w.cfg.closes {
			t.local(name, func(x *ctx) {
				if x.choose(2) == 1 {
					x.jump(&bye)
				}
			})
		}
	}
	t.place(&top)
	mayClose("close?")
	t.place(&take)
	w.take(t, head, early, &took, &none, &none)
	t.place(&took)
	t.local("take more?", func(x *ctx) {
		if x.choose(2) == 1 {
			x.jump(&take)
		}
	})
	t.place(&none)
	w.giveBack(t)
	t.local("is there something to complete", func(x *ctx) {
		s := x.s
		switch {
		case s.own[w.completed] != s.own[w.taken]:
		case s.own[w.flushed] != s.own[w.completed]:
			x.jump(&flush)
		default:
			x.jump(&idle)
		}
	})
	w.complete(t)
	t.goTo(&none)
	t.place(&flush)
	mayClose("close before Flush?")
	w.flushDone(t, early)
	t.goTo(&top)

	t.place(&idle)
	if w.cfg.spin {
		t.local("look again?", func(x *ctx) {
			if x.choose(2) == 1 {
				x.jump(&top)
			}
		})
	}
	w.waitWork(t, head, nil, nil)
	t.goTo(&top)
	if w.cfg.closes {
		t.place(&bye)
		w.close(t)
	}
}
