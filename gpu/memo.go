package gpu

import (
	"reflect"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/prefetch"
	"capgpu/ring"
)

// memo remembers what the entries in the kept slots of a queue's ring were resolved to:
// whoever does the same again and again is checked once. The ring compares versions, and
// hands out what is known without a look at the slot (ring.Known). A handle names one object
// for ever, so what was resolved stays true while the pins of all its objects are open; who
// runs it looks at them (resolved.open).
//
//	unknown ──memorize──► fit, or unfit ──(version, another)──► unknown
//	   ▲                       │
//	   └─────────drop──────────┘ (the ring knows it still: it is resolved anew from what it said)
//
// An entry that is in no slot, for it is large, or all slots are in use, is resolved for one
// burst. The slow obvious way is resolve.
type memo struct {
	known []*ring.Known // by slot
	slots []*resolved   // by slot, and behind them those for one burst
	once  int           // how many of the latter the burst has
	last  *resolved     // picked last
}

// resolved is a submission that was resolved and handed to Prepare.
type resolved struct {
	known   ring.Known // in a slot
	ready   backend.Ready
	nanos   int64  // a typical run
	picked  uint64 // the last burst that it was picked for
	openAt  uint64 // engine.closings when its objects were found open; 0: they were not yet
	fitness fitness
	// memory is what it works on, as far as there is room: see ahead.go.
	memory [4]prefetch.Line
	job    job // what it was resolved to; nothing of it is pinned
}

// fitness is what Prepare has said.
type fitness uint8

const (
	unknown fitness = iota // it was not asked, or what it has said is forgotten
	fit                    // ready is good
	unfit
)

const (
	// maxOnceArgs bounds the arguments, in words, of what goes in a burst and is in no slot,
	// and onceSlots is how many of them may.
	maxOnceArgs = 128
	onceSlots   = 8
	// mostMoved is how many buffers a copy has.
	mostMoved = 2
)

// memoBytes is the most that a memo takes: each entry may have been all inline arguments
// once, and all bindings another time.
func memoBytes(slots int) uint64 {
	of := func(args uint64) uint64 {
		sum := uint64(reflect.TypeFor[resolved]().Size() + reflect.TypeFor[*resolved]().Size() + reflect.TypeFor[*ring.Known]().Size())
		bindings := max(args/ring.BindingBytes, mostMoved)
		sum += 2*args + bindings*uint64(reflect.TypeFor[backend.Span]().Size()+reflect.TypeFor[*buffer]().Size())
		// Go's sizes are less than a sixth apart, or 16 bytes; some have 8 more.
		const allocations = 5
		return sum + sum/6 + 24*allocations + backend.ReadyBytes(bindings)
	}
	return uint64(slots)*of(ring.KeptArgBytes) + onceSlots*of(8*maxOnceArgs)
}

// of is what an entry was resolved to, or is to be; nil: it is in no slot, and the burst has
// too many of those.
func (m *memo) of(t *ring.Taken, slots int) *resolved {
	if m.slots == nil {
		m.known, m.slots = make([]*ring.Known, slots), make([]*resolved, slots+onceSlots)
	}
	i := t.Slot
	if i < 0 {
		if m.once == onceSlots {
			return nil
		}
		i = slots + m.once
		m.once++
	}
	if m.slots[i] == nil {
		m.slots[i] = &resolved{}
	}
	return m.slots[i]
}

// remember returns what an entry was resolved to, nil if it is not for a burst.
func (q *queue) remember(t *ring.Taken) *resolved {
	b := &q.burst
	m := &b.memo
	if t.Known != nil { // and the session's facet never changes
		if r := m.slots[t.Slot]; r.fitness == fit && r.known.Version == t.Version {
			r.picked = b.picks
			m.last = r
			return r
		}
		t.Expand()
	}
	switch {
	case t.Code != gpuerr.None || len(t.Args) > maxOnceArgs:
		return nil
	case t.Op == ring.OpLaunch:
		if q.session.facet < FacetProgram {
			return nil
		}
	case t.Op != ring.OpCopy && t.Op != ring.OpFill:
		return nil
	}
	r := m.of(t, b.slots)
	switch {
	case r == nil:
		return nil
	case t.Slot >= 0 && r.fitness != unknown && r.known.Version == t.Version: // since it was taken
	case r.picked == b.picks || !q.memorize(r, t): // its slot holds an earlier one of this burst, or it is refused
		return nil
	}
	if r.fitness != fit {
		return nil
	}
	r.picked = b.picks
	m.last = r
	return r
}

// memorize resolves an entry into r and has the backend look at it. False means that the
// entry must go the other way, which says what is wrong with it.
func (q *queue) memorize(r *resolved, t *ring.Taken) bool {
	r.drop()
	b := &q.burst
	if !b.joined {
		b.joined = true
		q.session.memos.join(q)
	}
	j := &r.job
	j.queue, j.op = q, t.Op
	j.grow(t)
	if q.resolve(j, t) != gpuerr.None {
		j.unpin()
		return false
	}
	ready, nanos, ok := b.backend.Prepare(&j.work, r.ready)
	pinned{buffers: j.buffers, program: j.program}.unpin()
	if t.Slot >= 0 {
		r.known.Keep(t)
		b.memo.known[t.Slot] = &r.known
	}
	if r.nanos, r.fitness, r.openAt = nanos, unfit, 0; ok {
		r.ready, r.fitness = ready, fit // else the old one may serve another time
	}
	for i := range r.memory {
		if r.memory[i] = 0; i < len(j.work.Spans) {
			r.memory[i] = prefetch.LineOf(j.work.Spans[i].Host)
		}
	}
	return true
}

// grow gives a job room for what an entry names, and no more: append would take up to twice
// as much, of which memoBytes knows nothing.
func (j *job) grow(t *ring.Taken) {
	buffers, inline := mostMoved, 0
	if t.Op == ring.OpLaunch {
		buffers = int(t.Count)
		inline = 8*len(t.Args) - ring.BindingBytes*buffers
	}
	if buffers > cap(j.buffers) {
		j.buffers = make([]*buffer, 0, buffers)
	}
	if buffers > cap(j.work.Spans) {
		j.work.Spans = make([]backend.Span, 0, buffers)
	}
	if inline > cap(j.inline) {
		j.inline = make([]byte, 0, inline)
	}
}

// drop forgets what was resolved.
func (r *resolved) drop() {
	r.fitness = unknown
	clear(r.job.buffers)
	r.job.buffers, r.job.program = r.job.buffers[:0], nil
	clear(r.job.work.Spans)
	r.job.work.Program = nil
}

// openSince is open, for who has the turn, and has read engine.closings since: what was found
// open before is, as long as nobody has closed anything. Who closes something counts that, and
// then waits for the turn.
func (r *resolved) openSince(now uint64) bool {
	if r.openAt == now {
		return true
	}
	if !r.open() {
		return false
	}
	r.openAt = now
	return true
}

// open reports whether all that it uses can still be used.
func (r *resolved) open() bool {
	if p := r.job.program; p != nil && p.pins.closed() {
		return false
	}
	for _, b := range r.job.buffers {
		if b.pins.closed() {
			return false
		}
	}
	return true
}
