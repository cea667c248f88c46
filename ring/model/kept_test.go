package model

// A ring whose entries all lie in one kept slot (ring/kept.go, ring/place.go). The words of
// the slot say how often it was written, which stands for what it says; a place is the
// position and the version, of which the client says a new one, or the same, with each
// write. So at most 4 submissions and 3 versions fit a word of the model.

// keptVars are what the client knows of its slot.
type keptVars struct {
	said, version reg
}

// keptWires are the words and variables of a kept slot.
type keptWires struct {
	places, slot, last word
	seenLast, place    own // as the driver read them
	known, knownAs     own // what it keeps, and its version; 0: nothing
	named              own // the first of one for each submission: what it said when it was pushed
}

func (w *wires) keptSlot(m *machine, suffix string) {
	if !w.cfg.kept {
		return
	}
	k := &w.kept
	k.last = m.word("sqLast"+suffix, true)
	k.places = word(len(m.words))
	for i := range w.cfg.entries {
		m.word("place["+digit(i)+"]"+suffix, true)
	}
	k.slot = word(len(m.words))
	for i := range w.cfg.slotWords {
		m.word("kept."+digit(i)+suffix, true)
	}
	for _, at := range []struct {
		name string
		own  *own
	}{{"seenLast", &k.seenLast}, {"place", &k.place}, {"known", &k.known}, {"known as", &k.knownAs}} {
		*at.own = m.own(at.name + suffix)
	}
	k.named = own(len(m.owns))
	for i := range w.cfg.submissions {
		m.own("named " + digit(i) + suffix)
	}
}

const maxVersions = 3

func placeWord(pos, version uint8) uint8 { return version<<2 | pos&3 }

// pushKept is Client.keepLocked and pushedLocked: it names what the slot says, or, where all
// that name it are taken, has it say something else.
func (w *wires) pushKept(t *thread, v *clientVars) {
	var name label
	k, bug := &w.kept, w.cfg.mistake
	t.local("Push: say something else?", func(x *ctx) {
		free := x.get(v.seenHead) == x.get(v.pushed) || bug == keptWrittenEarly
		if x.get(v.said) == 0 {
			return
		}
		if !free || x.get(v.said) == maxVersions || x.choose(2) == 1 {
			x.jump(&name)
		}
	})
	for i := range w.cfg.slotWords {
		t.local("Push: write word "+digit(i)+" of the kept slot", func(x *ctx) {
			x.store(k.slot+word(i), x.get(v.said)+1)
			if i == w.cfg.slotWords-1 && !x.blocked {
				x.set(v.said, x.get(v.said)+1)
				if bug != versionUsedAgain || x.get(v.version) == 0 {
					x.set(v.version, x.get(v.said))
				}
			}
		})
	}
	t.place(&name)
	write := func(x *ctx) {
		pos := x.get(v.pushed)
		x.store(k.places+word(pos%w.cfg.entries), placeWord(pos, x.get(v.version)))
		if !x.blocked {
			x.s.own[k.named+own(pos)] = x.get(v.said)
			x.set(v.pushed, pos+1)
		}
	}
	if bug == placeAfterTail {
		t.step("Push: publish too early", func(x *ctx) { x.swap(w.sqTail, x.get(v.pushed)+1) })
	}
	t.local("Push: write the place", write)
}

// storeLast is what Client.Flush does before sqTail.
func (w *wires) storeLast(t *thread, v *clientVars) {
	t.local("Flush: the last place", func(x *ctx) {
		x.store(w.kept.last, placeWord(x.get(v.pushed)-1, x.get(v.version)))
	})
}

// readLast follows the look at sqTail.
func (w *wires) readLast(t *thread) {
	t.step("look at sqLast", func(x *ctx) { x.s.own[w.kept.seenLast] = x.load(w.kept.last) })
}

// takeKept is Server.copyOutLocked of one entry: what is known is not read.
func (w *wires) takeKept(t *thread, then func(x *ctx)) {
	var placed, hit label
	k, bug := &w.kept, w.cfg.mistake
	t.local("forget what is known?", func(x *ctx) {
		if x.s.own[k.known] != 0 && x.choose(2) == 1 {
			x.s.own[k.known], x.s.own[k.knownAs] = 0, 0
		}
	})
	t.local("is it the last one", func(x *ctx) {
		s := x.s
		last := s.own[k.seenLast]
		if s.own[w.taken]+1 == s.own[w.seenTail] && (last&3 == s.own[w.taken]&3 && last != 0 || bug == lastNotDoubted) {
			s.own[k.place] = last
			x.jump(&placed)
		}
	})
	t.step("read the place", func(x *ctx) {
		x.s.own[k.place] = x.load(k.places + word(x.s.own[w.taken]%w.cfg.entries))
	})
	t.place(&placed)
	t.local("is it known", func(x *ctx) {
		s := x.s
		place := s.own[k.place]
		if place&3 != s.own[w.taken]&3 || place>>2 == 0 {
			x.fail(propAccused, "the driver finds place %d of version %d at position %d", place&3, place>>2, s.own[w.taken])
		}
		if s.own[k.known] != 0 && s.own[k.knownAs] == place>>2 {
			x.jump(&hit)
		}
	})
	if bug == sqHeadBeforeCopy {
		t.local("give the slot back too early", func(x *ctx) { x.store(w.sqHead, x.s.own[w.taken]+1) })
		t.local("know that it was", func(x *ctx) { x.s.own[w.consumed] = x.s.own[w.taken] + 1 })
	}
	for i := range w.cfg.slotWords {
		t.step("copy word "+digit(i)+" of the kept slot", func(x *ctx) {
			got, want := x.load(k.slot+word(i)), x.s.own[k.named+own(x.s.own[w.taken])]
			if got != want {
				x.fail(propEntry, "entry %d says %d, and is read as %d", x.s.own[w.taken]+1, want, got)
			}
			x.s.own[k.known] = got
		})
	}
	t.local("keep it", func(x *ctx) { x.s.own[k.knownAs] = x.s.own[k.place] >> 2 })
	t.place(&hit)
	t.local("take it", func(x *ctx) {
		s := x.s
		if want := s.own[k.named+own(s.own[w.taken])]; s.own[k.known] != want {
			x.fail(propEntry, "entry %d says %d, and is known as %d", s.own[w.taken]+1, want, s.own[k.known])
		}
		s.own[k.place] = 0
		s.own[w.taken]++
		then(x)
	})
}
