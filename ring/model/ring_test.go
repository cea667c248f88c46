package model

// config is a model of package ring: how large, and with which threads.
type config struct {
	order       order
	reduced     bool  // see machine
	entries     uint8 // of the submission queue
	completions uint8 // of the completion queue; 0: twice the entries, as on the wire
	slotWords   uint8 // words of an entry and of a completion
	submissions uint8
	fewer       uint8 // submissions less of the second ring of a reactor
	pollMax     uint8 // completions that one Poll takes
	// duplex has a client with a goroutine for each direction, service the driver of
	// package gpu: a queue's goroutine, its doorbell, and a device that ends work.
	// Else a side is one thread.
	duplex, service bool

	awakeClient bool  // the client never sleeps
	spin        bool  // a side that has nothing to do may look again before arming
	closes      bool  // the driver may close the ring at any time
	noEOF       bool  // and its end of the pipe stays open then
	timeout     uint8 // waits of the client that may end without a wake
	mistake     mistake
}

// Values of the wait flags and of state, as in docs/wire.md.
const (
	awake           = 0
	waitEntries     = 1
	waitCompletions = 2
	closingCode     = 7
)

// wires are the shared memory of one ring, its pipes, and what each side knows that
// is not one thread's alone.
type wires struct {
	cfg         config
	completions uint8

	sqTail, cqHead, cqWait word // the client's line
	sqHead, sqWait, state  word // the driver's
	submitted, published   word // Client.submitted, Server.published
	sq, cq                 word // the first word of the first slot
	work, done             pipe

	// The driver's, under its lock.
	taken, consumed, seenTail, seenHead, completed, flushed own
	// Kept only to check against: completions copied out by the client.
	polled own
}

func newWires(m *machine, cfg config, suffix string) *wires {
	w := &wires{cfg: cfg, completions: cfg.completions}
	if w.completions == 0 {
		w.completions = 2 * cfg.entries
	}
	for _, at := range []struct {
		name string
		word *word
	}{
		{"sqTail", &w.sqTail}, {"cqHead", &w.cqHead}, {"cqWait", &w.cqWait},
		{"sqHead", &w.sqHead}, {"sqWait", &w.sqWait}, {"state", &w.state},
		{"submitted", &w.submitted}, {"published", &w.published},
	} {
		*at.word = m.word(at.name+suffix, cfg.mistake == tailNotReleased && at.name == "sqTail")
	}
	w.sq, w.cq = w.slots(m, "sq"+suffix, cfg.entries), w.slots(m, "cq"+suffix, w.completions)
	w.work, w.done = m.pipe("submission pipe"+suffix), m.pipe("completion pipe"+suffix)
	for _, at := range []struct {
		name string
		own  *own
	}{
		{"taken", &w.taken}, {"consumed", &w.consumed}, {"seenTail", &w.seenTail}, {"seenHead", &w.seenHead},
		{"completed", &w.completed}, {"flushed", &w.flushed}, {"polled", &w.polled},
	} {
		*at.own = m.own(at.name + suffix)
	}
	return w
}

func (w *wires) slots(m *machine, name string, n uint8) (first word) {
	first = word(len(m.words))
	for i := range n {
		for j := range w.cfg.slotWords {
			m.word(name+"["+digit(i)+"]."+digit(j), true)
		}
	}
	return first
}

func digit(i uint8) string { return string(rune('0' + i)) }

// sqWord and cqWord are where a word of the entry at a position lies. The value that is
// written there is the position plus one, so that every entry differs. Word 0 of a
// completion is what says that it is there, and so stands for its lap; the others are its
// record.
func (w *wires) sqWord(pos, i uint8) word { return w.sq + word(pos%w.cfg.entries*w.cfg.slotWords+i) }
func (w *wires) cqWord(pos, i uint8) word { return w.cq + word(pos%w.completions*w.cfg.slotWords+i) }

// written checks what reaches the memory.
func (w *wires) written(x *ctx, at word, v uint8) {
	s := x.s
	forward := func(most uint8) {
		if v < s.mem[at] || v > most {
			x.fail(propPositions, "%s goes from %d to %d, at most %d", x.m.words[at], s.mem[at], v, most)
		}
	}
	switch {
	case at == w.sqTail:
		forward(min(w.cfg.submissions, s.mem[w.sqHead]+w.cfg.entries))
	case at == w.sqHead:
		forward(s.mem[w.sqTail])
	case at == w.cqHead:
		forward(s.own[w.flushed])
	case at >= w.sq && at < w.cq:
		if v > s.own[w.taken]+w.cfg.entries {
			x.fail(propSlot, "entry %d is written over entry %d, and only %d were copied out", v, v-w.cfg.entries, s.own[w.taken])
		}
	case at >= w.cq && at < w.cq+word(w.completions*w.cfg.slotWords):
		if v > s.own[w.polled]+w.completions {
			x.fail(propSlot, "completion %d is written over completion %d, and only %d were copied out", v, v-w.completions, s.own[w.polled])
		}
	}
}

// read checks a word that was copied out.
func (w *wires) read(x *ctx, what string, got, pos uint8) {
	if got != pos+1 {
		x.fail(propEntry, "%s %d is read as %d", what, pos+1, got)
	}
}

// copyOut reads the slot at a position, word by word from the first that was not read, and
// counts the position up.
func (w *wires) copyOut(t *thread, what string, pos own, at func(pos, i uint8) word, first uint8, then func(x *ctx)) {
	copied := func(x *ctx) {
		x.s.own[pos]++
		then(x)
	}
	if w.cfg.reduced || first == w.cfg.slotWords {
		t.local("copy a slot", func(x *ctx) {
			for i := first; i < w.cfg.slotWords; i++ {
				w.read(x, what, x.peek(at(x.s.own[pos], i)), x.s.own[pos])
			}
			copied(x)
		})
		return
	}
	for i := first; i < w.cfg.slotWords; i++ {
		t.step("copy word "+digit(i)+" of a slot", func(x *ctx) {
			w.read(x, what, x.load(at(x.s.own[pos], i)), x.s.own[pos])
			if i == w.cfg.slotWords-1 {
				copied(x)
			}
		})
	}
}

// write stores a word of the slot at a position. head is what the reader has given
// back of so many slots.
func (w *wires) write(x *ctx, at func(pos, i uint8) word, pos, i uint8, head word, slots uint8) {
	if w.cfg.reduced && pos >= x.s.mem[head]+slots {
		x.fail(propSlot, "the slot of %d is written for %d before it was given back", pos+1-slots, pos+1)
	}
	x.store(at(pos, i), pos+1)
}

// allDone looks at the end.
func (w *wires) allDone(s *state) (property, detail string) {
	n := w.cfg.submissions
	if s.mem[w.state] == 0 && (s.own[w.taken] != n || s.own[w.completed] != n || s.own[w.polled] != n) {
		return propEnd, "not every submission was taken, completed and seen"
	}
	return "", ""
}

// newRing is a model of one ring.
func newRing(cfg config) *machine {
	m := &machine{order: cfg.order, reduced: cfg.reduced}
	w := newWires(m, cfg, "")
	m.written = w.written
	m.ended = w.allDone
	if cfg.duplex {
		newSubmitter(m, w)
		newPoller(m, w)
	} else {
		newClient(m, w)
	}
	switch {
	case cfg.service:
		newQueue(m, w)
	default:
		newDriver(m, w)
	}
	return m
}
