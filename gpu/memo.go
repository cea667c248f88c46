package gpu

import (
	"math/bits"
	"reflect"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// memo remembers what the last submissions of one queue were resolved to: whoever does
// the same again and again is checked once. An entry is found by all that it says, but
// for its user data and where in the arena its arguments lay, compared word by word. A
// handle names one object for ever, so what was resolved stays true while the pins of
// all its objects are open; who runs it looks at them (resolved.open).
//
// It is a table of few slots that overwrite each other, and allocates when it is first
// used. The slow obvious way is resolve.
type memo struct {
	slots []*resolved // by the low bits of the hash
	last  *resolved   // found or made last
}

// resolved is a submission that was resolved and handed to Prepare.
type resolved struct {
	known  ring.Known // the entry's words without user data and argument offset, and its arguments
	job    job        // what it was resolved to; nothing of it is pinned
	ready  backend.Ready
	nanos  int64     // a typical run
	fit    bool      // ready is good
	after  *resolved // what came after it the last time: likely what comes now
	picked uint64    // the last burst that it was picked for
	alive  uint64    // the last turn in which its objects were found open
}

const (
	// maxMemoArgs bounds the arguments, in words, of what is remembered.
	maxMemoArgs = 128
	// memoSlots are there for each queue at most, and a quarter of its entries.
	memoSlots = 64
)

// memoSlotBytes is about what a slot takes, with buffers and spans for each binding.
var memoSlotBytes = uint64(reflect.TypeFor[resolved]().Size()) + 2*8*maxMemoArgs + 64*uint64(reflect.TypeFor[backend.Span]().Size()+8)

// memoSize is how many slots a queue of so many entries has: a power of two.
func memoSize(entries uint32) int { return int(min(max(entries/4, 4), memoSlots)) }

// memoKey is what an entry is found by.
func memoKey(t *ring.Taken) (key [8]uint64) {
	key = t.Words
	key[1] = 0                 // user data
	if t.Op == ring.OpLaunch { // the arguments, not where they are
		key[6] &^= 0xffffffff
	}
	return key
}

// is reports whether r is of an entry that says the same. It is memoKey and a comparison,
// without the copy.
func (r *resolved) is(t *ring.Taken) bool {
	w, k := &t.Words, &r.known.Words
	differ := (w[0] ^ k[0]) | (w[2] ^ k[2]) | (w[3] ^ k[3]) | (w[4] ^ k[4]) | (w[5] ^ k[5]) | (w[7] ^ k[7])
	if d := w[6] ^ k[6]; t.Op == ring.OpLaunch {
		differ |= d >> 32
	} else {
		differ |= d
	}
	args := t.Args
	if differ != 0 || len(r.known.Args) != len(args) {
		return false
	}
	for i, w := range r.known.Args {
		differ |= args[i] ^ w
	}
	return differ == 0
}

// find returns what the entry was resolved to, and else the slot for it.
func (m *memo) find(t *ring.Taken, size int) (r *resolved, known bool) {
	if m.last != nil && m.last.after != nil && m.last.after.is(t) {
		m.last = m.last.after
		return m.last, true
	}
	key, args := memoKey(t), t.Args
	if m.slots == nil {
		m.slots = make([]*resolved, size)
	}
	slot := &m.slots[memoHash(&key, args)&uint64(size-1)]
	if *slot == nil {
		*slot = &resolved{}
		(*slot).known.Of = *slot
	}
	if r = *slot; !r.is(t) {
		return r, false
	}
	m.follow(r)
	return r, true
}

// follow notes the order in which entries come.
func (m *memo) follow(r *resolved) {
	if m.last != nil {
		m.last.after, m.last.known.After = r, r.guess()
	}
	m.last = r
}

// guess is what the ring is told to expect where r comes next.
func (r *resolved) guess() *ring.Known {
	if r.job.op != ring.OpLaunch {
		return nil
	}
	return &r.known
}

// guess is what the ring is told to expect next.
func (m *memo) guess() *ring.Known {
	if m.last == nil {
		return nil
	}
	return m.last.known.After
}

// recall returns what an entry was resolved to which the ring found to be known, nil if
// that has been overwritten since.
func (m *memo) recall(t *ring.Taken) *resolved {
	r, ok := t.Known.Of.(*resolved)
	if !ok || t.Known.Serial != t.Serial {
		return nil
	}
	m.last = r
	return r
}

func memoHash(key *[8]uint64, args []uint64) uint64 {
	const a, b = 0x9e3779b97f4a7c15, 0xd1b54a32d192ed03
	x, y := uint64(a), uint64(b)
	mix := func(h, w, k uint64) uint64 {
		hi, lo := bits.Mul64(h^w, k)
		return hi ^ lo
	}
	for i := 0; i < len(key); i += 2 {
		x, y = mix(x, key[i], a), mix(y, key[i+1], b)
	}
	i := 0
	for ; i+2 <= len(args); i += 2 {
		x, y = mix(x, args[i], a), mix(y, args[i+1], b)
	}
	if i < len(args) {
		x = mix(x, args[i], a)
	}
	return mix(x, y, a)
}

// drop forgets what was resolved. The slot stays.
func (r *resolved) drop() {
	r.known.Words, r.fit = [8]uint64{}, false // no entry that is looked for is all zero
	r.known.Serial++
	clear(r.job.buffers)
	r.job.buffers, r.job.program = r.job.buffers[:0], nil
	clear(r.job.work.Spans)
	r.job.work.Program = nil
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

// memorize resolves an entry into r and has the backend look at it. False means that the
// entry must go the other way, which says what is wrong with it.
func (q *queue) memorize(r *resolved, t *ring.Taken) bool {
	r.drop()
	if b := &q.burst; !b.joined {
		b.joined = true
		q.session.memos.join(q)
	}
	j := &r.job
	j.queue, j.op = q, t.Op
	if q.resolve(j, t) != gpuerr.None {
		j.unpin()
		return false
	}
	ready, nanos, fit := q.burst.backend.Prepare(&j.work, r.ready)
	pinned{buffers: j.buffers, program: j.program}.unpin()
	r.known.Words, r.known.Args = memoKey(t), append(r.known.Args[:0], t.Args...)
	r.known.Serial++
	if r.nanos, r.fit, r.alive = nanos, fit, 0; fit {
		r.ready = ready // else the old one may serve another time
	}
	q.burst.memo.follow(r)
	return true
}
