package model

// newReactor is a driver that serves two rings in one thread, each with a client of its own:
//
//	serve each ──► nothing left ──► arm each ──► none is ready ──► poll ──► drain those that
//	     ▲                             │ one is                              rang, disarm all
//	     └─────────────────────────────┴───────────────────────────────────────────┘
func newReactor(cfg config) *machine {
	m := &machine{order: cfg.order, reduced: cfg.reduced}
	var all []*wires
	for i := range 2 {
		first := word(len(m.words))
		if i > 0 {
			cfg.submissions -= cfg.fewer
		}
		w := newWires(m, cfg, string(rune('A'+i)))
		newClient(m, w)
		all = append(all, w)
		last := word(len(m.words))
		before := m.written
		m.written = func(x *ctx, at word, v uint8) {
			if at >= first && at < last {
				w.written(x, at, v)
			} else if before != nil {
				before(x, at, v)
			}
		}
	}
	for i, t := range m.threads {
		t.name += " " + string(rune('A'+i))
	}
	newReactorThread(m, cfg.mistake, all)
	m.ended = func(s *state) (property, detail string) {
		for _, w := range all {
			if property, detail = w.allDone(s); property != "" {
				break
			}
		}
		return property, detail
	}
	return m
}

func newReactorThread(m *machine, bug mistake, all []*wires) {
	t := m.thread("reactor", true)
	head, early, worked, slept := t.reg("cqHead"), t.reg("early"), t.reg("worked"), t.reg("slept")
	rang := []reg{t.reg("A has rung"), t.reg("B has rung")}
	asked := []reg{t.reg("A is asked"), t.reg("B is asked")}
	var top label
	t.place(&top)
	for i, w := range all {
		var skip label
		if bug == reactorServesTheRung {
			t.local("has it rung", func(x *ctx) {
				if x.get(slept) != 0 && x.get(rang[i]) == 0 {
					x.jump(&skip)
				}
			})
		}
		w.serve(t, head, early, worked)
		t.place(&skip)
	}
	t.local("was there something", func(x *ctx) {
		x.set(slept, 0)
		if x.get(worked) != 0 {
			x.set(worked, 0)
			x.jump(&top)
		}
	})

	for i, w := range all {
		var armed, ready label
		if bug == reactorArmsOne && i > 0 {
			break
		}
		if bug == reactorTrustsOldQuestions {
			t.local("is it asked already", func(x *ctx) {
				if x.get(asked[i]) != 0 {
					x.jump(&armed)
				}
				x.set(asked[i], 1)
			})
		}
		if bug == reactorDrainsAsItArms {
			t.step("drain", func(x *ctx) {
				x.touch()
				x.woken(w.work)
			})
		}
		if bug == reactorSkipsBusyRings {
			w.arm(t, head, false, &armed, &armed)
		} else {
			w.arm(t, head, false, &ready, &armed)
		}
		t.place(&ready)
		if bug != reactorSkipsBusyRings {
			t.goTo(&top)
		}
		t.place(&armed)
	}

	if bug == reactorDrainsLate {
		for _, w := range all {
			t.step("drain too late", func(x *ctx) {
				x.touch()
				x.woken(w.work)
			})
		}
	}
	t.sleep("poll", func(x *ctx) {
		if !x.fence() {
			return
		}
		some := uint8(0)
		for i, w := range all {
			x.set(rang[i], x.s.pipe[w.work]&token)
			some |= x.get(rang[i])
		}
		if x.set(slept, 1); some == 0 {
			x.block()
		}
	})
	for i, w := range all {
		var quiet label
		t.local("has it rung", func(x *ctx) {
			if x.get(rang[i]) == 0 || bug == reactorNeverDrains {
				x.jump(&quiet)
			}
		})
		t.step("drain", func(x *ctx) {
			x.touch()
			x.woken(w.work)
		})
		t.place(&quiet)
		w.disarm(t)
	}
	t.goTo(&top)
}

// serve takes what there is in one ring, and completes it.
func (w *wires) serve(t *thread, head, early, worked reg) {
	var take, took, complete, publish, nothing label
	t.place(&take)
	w.take(t, head, early, &took, &nothing, &nothing)
	t.place(&took)
	t.local("take: there is something", func(x *ctx) {
		x.set(worked, 1)
		if w.cfg.pollMax > 1 { // a batch
			x.jump(&take)
		}
	})
	t.place(&nothing)
	w.giveBack(t)
	t.place(&complete)
	t.local("is there something to complete", func(x *ctx) {
		if x.s.own[w.completed] == x.s.own[w.taken] {
			x.jump(&publish)
		}
	})
	w.complete(t)
	t.goTo(&complete)
	t.place(&publish)
	w.flushDone(t, early)
}
