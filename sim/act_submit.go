package sim

import (
	"time"

	"capgpu/outcome"
	"capgpu/ring"
)

// submit writes some entries and publishes them.
func (w *world) submit() {
	s := w.session(false)
	q := w.queue(s)
	if q == nil {
		return
	}
	n := 1 + w.rand.IntN(6)
	w.trace("submit %d %d", q.n, n)
	for range n {
		if !w.push(q, w.planned()) {
			break
		}
	}
	w.flush(q)
}

// planned draws the device's behaviour with the next job: mostly the right one.
func (w *world) planned() plan {
	if w.rand.IntN(100) < 96 {
		return planGood
	}
	return []plan{planSlow, planSlow, planTrap, planError}[w.rand.IntN(4)]
}

func (w *world) flush(q *queue) {
	err := q.local.Client.Flush()
	if err == nil {
		w.published(q)
	}
	w.trace("flush %d %s", q.n, codeOf(err))
	w.wait() // so that the next action finds it taken
}

// push writes one entry. It returns false if the ring is full, or has ended.
func (w *world) push(q *queue, p plan) bool {
	s := q.s
	o := &op{id: uint64(len(w.guarded.ops) + 1), q: q, plan: p, published: time.Now()}
	o.kind = []opKind{opNop, opFill, opFill, opFill, opCopy, opCopy, opLaunch, opLaunch, opSignal, opWait, opBad}[w.rand.IntN(11)]
	if p != planGood {
		o.kind = []opKind{opFill, opLaunch}[w.rand.IntN(2)]
	}
	return w.pushOp(s, q, o)
}

func (w *world) pushOp(s *session, q *queue, o *op) bool {
	var e ring.Entry
	var bindings []ring.Binding
	var inline []byte
	if len(s.bufs) < 2 && o.kind.device() || len(s.fences) == 0 && (o.kind == opSignal || o.kind == opWait) {
		o.kind = opNop
	}

	switch o.kind {
	case opFill:
		o.dst = s.bufs[w.rand.IntN(len(s.bufs))]
		o.n = 4 * (1 + w.rand.Uint64N(256))
		o.off = 4 * w.rand.Uint64N((o.dst.bytes-o.n)/4+1)
		e = ring.FillEntry(o.id, uint64(o.dst.h), o.off, o.n, uint32(o.id), 0)

	case opCopy:
		i := w.rand.IntN(len(s.bufs))
		o.dst, o.src = s.bufs[i], s.bufs[(i+1)%len(s.bufs)]
		o.n = 4 * (1 + o.id%1000)
		e = ring.CopyEntry(o.id, uint64(o.dst.h), 0, uint64(o.src.h), 0, o.n, 0)

	case opLaunch:
		i := w.rand.IntN(len(s.bufs))
		o.dst, o.src = s.bufs[i], s.bufs[(i+1)%len(s.bufs)]
		o.n = 256
		e = ring.LaunchEntry(o.id, uint64(s.program), ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3{}, 0, 0)
		bindings = []ring.Binding{{Buffer: uint64(o.src.h), Len: o.n}, {Buffer: uint64(o.dst.h), Len: o.n}}
		inline = idBytes(o.id)

	case opSignal:
		o.f = s.fences[w.rand.IntN(len(s.fences))]
		o.f.next++
		o.value = o.f.next
		e = ring.SignalEntry(o.id, uint64(o.f.h), o.value)

	case opWait:
		// The wait is for an earlier promise, of another queue or this one, so it
		// can always end.
		o.f = s.fences[w.rand.IntN(len(s.fences))]
		if len(o.f.promised) > 0 {
			o.value = o.f.promised[w.rand.IntN(len(o.f.promised))].value
		}
		e = ring.WaitEntry(o.id, uint64(o.f.h), o.value)

	case opBad:
		w.hit(BadHandles)
		h := []uint64{1, 1 << 63, ^uint64(0), uint64(s.program) + 1<<32, 0xffffffff}[w.rand.IntN(5)]
		e = ring.FillEntry(o.id, h, 0, 4, 0, 0)

	default:
		e = ring.NopEntry(o.id)
	}

	// The op is recorded before the driver can see it.
	w.guarded.mu.Lock()
	w.guarded.ops[o.id] = o
	if o.kind == opCopy {
		w.guarded.copies[int(o.n)] = o.id
	}

	w.guarded.mu.Unlock()
	if err := q.local.Client.Push(&e, bindings, inline); err != nil {
		o.ended = true // never published
		o.how = outcome.Outcome{Kind: outcome.Cancelled}
		return false
	}

	q.pushed++
	q.pending = append(q.pending, o)
	if o.kind == opSignal {
		o.f.promised = append(o.f.promised, promise{o.value, o})
	}

	w.trace("op %d %s plan=%d", o.id, opNames[o.kind], o.plan)
	return true
}
