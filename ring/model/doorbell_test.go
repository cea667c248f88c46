package model

// bell is one doorbell of a driver for many rings: a bitmap in which a client sets
// the bit of its ring, a flag by which the driver asks for a wake, one pipe.
//
//	client: publish sqTail, set the bit (atomic or), then, if the flag is 1,
//	        compare-and-swap it to 0 and signal
//	driver: swap the words of the bitmap to 0 and serve those rings; when there are
//	        none, set the flag (Swap), look at the bitmap again, sleep
//
// A ring whose completions are used up is left with its sqWait at waitCompletions,
// cqHead looked at once more; the client that takes that away sets its bit.
type bell struct {
	cfg    config
	flag   word
	bitmap []word
	pipe   pipe
}

// newBell is a model of rings under one doorbell, each with a client of its own.
// Their bits lie in so many words.
func newBell(cfg config, rings, words int) *machine {
	m := &machine{order: cfg.order, reduced: cfg.reduced}
	b := &bell{cfg: cfg, flag: m.word("flag", false), pipe: m.pipe("doorbell")}
	for i := range words {
		b.bitmap = append(b.bitmap, m.word("bitmap"+digit(uint8(i)), false))
	}
	var all []*wires
	for i := range rings {
		first := word(len(m.words))
		if i > 0 {
			cfg.submissions -= cfg.fewer
		}
		w := newWires(m, cfg, string(rune('A'+i)))
		w.bell, w.number = b, i
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
	newBellDriver(m, b, all)
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

// place is the word and the bit of a ring.
func (b *bell) place(ring int) (word, uint8) {
	return b.bitmap[ring%len(b.bitmap)], 1 << (ring / len(b.bitmap))
}

// ring is what a client does that has published.
func (b *bell) ring(t *thread, w *wires) {
	at, bit := b.place(w.number)
	bug := b.cfg.mistake
	var done, set label
	look := func() {
		t.step("look at the doorbell's flag", func(x *ctx) {
			if x.load(b.flag) == 0 {
				x.jump(&done)
				if bug == bellLooksFirst {
					x.jump(&set)
				}
			}
		})
	}
	setBit := func() {
		switch bug {
		case bitNotAtomic:
			bits := t.reg("bits")
			t.step("read the bitmap", func(x *ctx) { x.set(bits, x.load(at)) })
			t.step("set the bit", func(x *ctx) {
				if x.swap(at, x.get(bits)|bit); !x.blocked {
					x.set(bits, 0)
				}
			})
		default:
			t.step("set the bit", func(x *ctx) {
				if old := x.or(at, bit); bug == bellSkipsIfSet && !x.blocked && old&bit != 0 {
					x.jump(&done)
				}
			})
		}
	}
	if bug == bellLooksFirst {
		look()
		setBit()
	} else {
		setBit()
		if bug != bellExtraWake {
			look()
		}
	}
	if bug != bellFlagLeftSet && bug != bellExtraWake {
		t.step("clear the doorbell's flag", func(x *ctx) {
			if !x.cas(b.flag, 1, 0) && !x.blocked {
				x.jump(&done)
			}
		})
	}
	t.step("signal", func(x *ctx) { x.signal(b.pipe) })
	t.goTo(&done)
	t.place(&set)
	if bug == bellLooksFirst {
		setBit()
	}
	t.place(&done)
}

// askBell is what a client does that has taken completions.
func (w *wires) askBell(t *thread, done *label) {
	t.step("look at the wait flag", func(x *ctx) {
		if x.load(w.sqWait) != waitCompletions {
			x.jump(done)
		}
	})
	t.step("clear the wait flag", func(x *ctx) {
		if !x.cas(w.sqWait, waitCompletions, awake) && !x.blocked {
			x.jump(done)
		}
	})
	w.bell.ring(t, w)
	t.goTo(done)
}

// newBellDriver serves all rings in one thread.
func newBellDriver(m *machine, b *bell, all []*wires) {
	t := m.thread("driver", true)
	head, early, bits := t.reg("cqHead"), t.reg("early"), t.reg("bits")
	bug := b.cfg.mistake
	found := t.reg("found")
	var top, clear label
	t.place(&top)
	for _, at := range b.bitmap {
		var after label
		switch bug {
		case bitmapReadAndCleared:
			t.step("read the bitmap", func(x *ctx) { x.set(bits, x.load(at)) })
			t.step("clear the bitmap", func(x *ctx) { x.swap(at, 0) })
		case bitmapClearedLast:
			t.step("read the bitmap", func(x *ctx) { x.set(bits, x.load(at)) })
		default:
			t.step("take the bitmap", func(x *ctx) {
				got := x.swap(at, 0)
				if bug == bellServesAll && got != 0 {
					got = 3
				}
				x.set(bits, got)
			})
		}
		t.local("is a bit set", func(x *ctx) {
			if x.get(bits) == 0 {
				x.jump(&after)
			}
		})
		for j, w := range all {
			of, bit := b.place(j)
			if of != at {
				continue
			}
			var skip label
			t.local("is it "+string(rune('A'+j)), func(x *ctx) {
				if x.get(bits)&bit == 0 {
					x.jump(&skip)
					return
				}
				x.set(found, 1)
			})
			w.serve(t, head, early)
			t.place(&skip)
		}
		if bug == bitmapClearedLast {
			t.step("clear the bitmap", func(x *ctx) { x.swap(at, 0) })
		}
		t.place(&after)
		t.local("the next word", func(x *ctx) { x.set(bits, 0) })
	}
	t.local("was there something", func(x *ctx) {
		if x.get(found) != 0 {
			x.set(found, 0)
			x.jump(&top)
		}
	})
	t.step("arm the doorbell", func(x *ctx) {
		if bug == bellArmWithoutFence {
			x.store(b.flag, 1)
		} else {
			x.swap(b.flag, 1)
		}
	})
	for i, at := range b.bitmap {
		if bug == bellLooksNotAgain || bug == bellLooksAtOneWord && i > 0 {
			break
		}
		t.step("look at the bitmap again", func(x *ctx) {
			if x.load(at) != 0 {
				x.jump(&clear)
			}
		})
	}
	t.sleep("sleep", func(x *ctx) { x.wait(b.pipe) })
	t.place(&clear)
	t.local("disarm the doorbell", func(x *ctx) {
		if x.store(b.flag, 0); !x.blocked {
			x.jump(&top)
		}
	})
}

// serve takes what there is in one ring, completes it, and leaves the ring so that
// its bit will be set when there is more.
func (w *wires) serve(t *thread, head, early reg) {
	bug := w.cfg.mistake
	var take, took, entries, completions, out, finish label
	t.place(&take)
	w.take(t, head, early, &took, &entries, &completions)
	t.place(&took)
	w.giveBack(t)
	w.complete(t)
	w.flushDone(t, early)
	t.goTo(&take)
	t.place(&completions)
	if bug != fullRingForgotten {
		t.step("ask for completions to be taken", func(x *ctx) { x.swap(w.sqWait, waitCompletions) })
		if bug != fullRingLooksNotAgain {
			w.look(t, head, &out, &out, &finish)
			t.place(&out)
			t.local("do not ask", func(x *ctx) {
				if x.store(w.sqWait, awake); !x.blocked {
					x.jump(&take)
				}
			})
		}
	}
	t.place(&entries)
	t.place(&finish)
}
