package native

import (
	"math"
	"sync"
)

// Rotary embedding into the cache: an item is a row of the batch.

var ropeCacheShape = shape{bindings: 6, inlineWords: 8, write: 0, write2: 4, more: 1 << 5}

var ropeCacheBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !ropeCacheShape.fits(c) {
			return 0, false
		}
		q := cachedOf(c, 2, 5)
		if q.batch == 0 || q.dim == 0 {
			return 0, true
		}
		ok := q.fits() && q.dim%2 == 0 && c.inline(4) <= 1 && q.dim/2 <= c.words(1)
		return q.batch, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		if lo == hi {
			return true
		}
		q := cachedOf(c, 2, 5)
		t := turnsPool.Get().(*turns)
		t.prepare(c.f32(1)[:q.dim/2], c.inline(4) == 0, c.inlineF32(7))
		ok := true
		for ; ok && lo < hi; lo++ {
			ok = t.row(&q, lo)
		}
		turnsPool.Put(t)
		return ok
	},
	Grain: func(c *Call) uint64 {
		heads, kv, dim := c.inline(0), c.inline(1), c.inline(2)
		return grainOf(3*(heads+2*kv)*dim + dim*angleWords/2)
	},
	Nanos: func(c *Call) (uint64, bool) {
		heads, kv, dim, batch := c.inline(0), c.inline(1), c.inline(2), c.inline(3)
		if dim == 0 || batch == 0 {
			return callNanos, assembly()
		}
		// Angles are mostly cached, because a model turns all its layers by the
		// same ones. But a client may use others every time.
		nanos, ok := pace{words: 192, exps: true}.nanos(12*batch+dim, batch*(heads+2*kv)*dim)
		// Every row has a place of its own in k and in v.
		nanos += scattered(2*batch, 2*batch*kv*dim, c.words(4)+c.words(5))
		return nanos + batch*dim/2*angleNanos, ok
	},
}

// angleNanos is a third of the maximal time of a cosine and a sine.
const angleNanos = 9

const (
	turnSlots = 64
	turnWords = mostHeadDim
)

// turns are the cosines and sines of positions for some frequencies. They are
// cached, because a model uses the same ones in each of its layers. Position p is
// in slot p%turnSlots.
type turns struct {
	dim   int
	pairs bool // of neighbours; otherwise of halves
	scale float32
	freqs [mostHeadDim / 2]uint32 // bits of those that the slots are for
	of    [turnSlots]uint64       // the position in the slot and 1, or 0
	cos   [turnSlots][turnWords]float32
	sin   [turnSlots][turnWords]float32
}

var turnsPool = sync.Pool{New: func() any { return new(turns) }}

// prepare empties the slots if they are for other frequencies.
func (t *turns) prepare(freqs []float32, pairs bool, scale float32) {
	same := t.dim == 2*len(freqs) && t.pairs == pairs && t.scale == scale
	t.dim, t.pairs, t.scale = 2*len(freqs), pairs, scale
	for i := range freqs {
		f := math.Float32bits(freqs[i])
		same = same && t.freqs[i] == f
		t.freqs[i] = f
	}
	if !same {
		clear(t.of[:])
	}
}

// to are the cosines and sines for a position. For halves there is one of each per
// pair. For neighbours there are two, as rotate needs them, for as many whole heads
// as there is room.
func (t *turns) to(position uint64) (c, s []float32) {
	slot := position % turnSlots
	half, n := t.dim/2, t.dim/2
	if t.pairs {
		n = turnWords / t.dim * t.dim
	}

	c, s = t.cos[slot][:n], t.sin[slot][:n]
	if t.of[slot] == position+1 {
		return c, s
	}

	t.of[slot] = position + 1
	for i := range half {
		freq, by := math.Float32frombits(t.freqs[i]), float32(1)
		if freq != 0 {
			by = t.scale
		}
		sin64, cos64 := math.Sincos(float64(float32(position) * freq))
		sin, cos := float32(sin64)*by, float32(cos64)*by
		if !t.pairs {
			c[i], s[i] = cos, sin
			continue
		}
		for at := 2 * i; at < n; at += t.dim {
			c[at], c[at+1] = cos, cos
			s[at], s[at+1] = -sin, sin
		}
	}

	return c, s
}

// turn turns whole heads.
func (t *turns) turn(x, c, s []float32) {
	if !t.pairs {
		rotateHalves(x, c, s)
		return
	}
	for len(x) > len(c) {
		rotate(x[:len(c)], c, s)
		x = x[len(c):]
	}
	rotate(x, c, s)
}

// row does a row of the batch. It returns false if the program would trap.
func (t *turns) row(q *cached, b uint64) bool {
	position, sequence := q.at(b)
	if sequence == padding {
		return true
	}
	if !q.reaches(position, sequence) {
		return false
	}

	at, ok := q.place(position, sequence)
	if !ok {
		return false
	}

	at += position & (q.page - 1) * q.width
	row, turned := q.qkv[b*q.row:][:q.row], q.heads*q.dim
	c, s := t.to(position)
	t.turn(row[:turned], c, s)
	k, v := q.k[at:][:q.width], q.v[at:][:q.width]
	copy(k, row[turned:])
	t.turn(k, c, s)
	copy(v, row[turned+q.width:])
	return true
}
