package native

import (
	"math"
	"sync"
	"sync/atomic"
)

// attend is the state of attention to a cache besides its call: several heads of a
// row are done together.
type attend struct {
	places  [attendStep]uint64 // where runs of positions begin in k and v
	weights [mostHeads * attendStep]float32
	query   [mostHeads * mostHeadDim]float32
	sums    [mostHeads * mostHeadDim]float32

	most, total, sum [mostHeads]float32

	run          uint64 // positions of a run
	from, placed uint64 // positions from and up to which places are noted
}

var attends = sync.Pool{New: func() any { return new(attend) }}

// together are heads that are done together: groups with keys and values of their own,
// each heads in a group. The first group's keys begin at element start of a position.
type together struct {
	groups, each, start uint64
}

// items does items. Rows may be of any length, so stop, if there is one, is checked
// once in attendStep positions.
func (a *attend) items(q *cached, out []float32, lo, hi uint64, stop *atomic.Uint32) bool {
	a.run = min(q.page, attendRun)
	for lo < hi {
		b, first := lo/q.heads, lo%q.heads
		last := min(q.heads, first+hi-lo)
		lo += last - first
		to := out[b*q.heads*q.dim:][:q.heads*q.dim]
		position, sequence := q.at(b)
		if sequence == padding {
			clear(to[first*q.dim : last*q.dim])
			continue
		}
		if !q.reaches(position, sequence) {
			return false
		}

		a.from, a.placed = 0, 0
		query := q.qkv[b*q.row:][:q.heads*q.dim]
		for h := first; h < last; {
			t := q.together(h, last)
			n := t.groups * t.each
			if !a.heads(q, t, to[h*q.dim:][:n*q.dim], query[h*q.dim:][:n*q.dim], position, sequence, stop) {
				return false
			}
			h += n
		}
	}

	return true
}

// together are as many heads from h on as can be done together.
func (q *cached) together(h, last uint64) together {
	share := q.heads / q.kv
	t := together{groups: 1, each: min(share-h%share, last-h, mostHeads), start: h / share * q.dim}
	if t.each == share {
		t.groups = min(last-h, mostHeads) / share
	}
	return t
}

// note looks up the places of n positions, from the beginning of a run on or within one.
func (a *attend) note(q *cached, from, n, sequence uint64) bool {
	if a.from == from && a.placed == from+n {
		return true
	}
	a.from, a.placed = from, from+n
	for i := uint64(0); i*a.run < n; i++ {
		position := from + i*a.run
		at, ok := q.place(position, sequence)
		if !ok {
			a.placed = 0
			return false
		}
		a.places[i] = at + position&(q.page-1)*q.width
	}
	return true
}

// heads does heads that are done together. A window may begin within a run: the rest of
// that run is a step of its own, so that later ones begin where runs do.
func (a *attend) heads(q *cached, t together, out, query []float32, position, sequence uint64, stop *atomic.Uint32) bool {
	first, length := uint64(0), position+1
	if q.window != 0 && position >= q.window {
		first = length - q.window
	}

	n := t.groups * t.each
	scaled, sums := a.query[:len(query)], a.sums[:len(query)]
	scale(scaled, query, q.scale)
	clear(sums)
	for i := range n {
		a.most[i], a.total[i] = -math.MaxFloat32, 0
	}

	for from, count := first, uint64(0); from < length; from += count {
		if stop != nil && stop.Load() != 0 {
			return false
		}

		count = min(length-from, attendStep)
		within := from & (a.run - 1)
		if within != 0 {
			count = min(count, a.run-within)
		}
		if !a.note(q, from, count, sequence) {
			return false
		}

		before := a.most
		a.scores(q, t, int(count), within == 0)
		if q.limit > 0 {
			for i := range n {
				softcap(a.weights[i*attendStep:][:count], q.limit)
			}
		}
		a.weigh(int(count), int(n))
		for i := range n {
			if from > first && before[i] != a.most[i] {
				keep := float32(math.Exp(float64(before[i] - a.most[i])))
				scale(sums[i*q.dim:][:q.dim], sums[i*q.dim:][:q.dim], keep)
				a.total[i] *= keep
			}
			a.total[i] += a.sum[i]
		}

		a.values(q, t, int(count), within == 0)
	}

	scaleHeads(out, sums, a.total[:n], int(q.dim))
	return true
}

// runs calls f for the runs of n positions, for each head: its number, its part of the
// keys or values from where the run begins, and its weights there.
func (a *attend) runs(q *cached, t together, cache []float32, n int, f func(head uint64, rows, weights []float32)) {
	for i := 0; i*int(a.run) < n; i++ {
		at := i * int(a.run)
		count := min(n-at, int(a.run))
		for head := range t.groups * t.each {
			start := a.places[i] + t.start + head/t.each*q.dim
			f(head, cache[start:], a.weights[head*attendStep:][at:at+count])
		}
	}
}

// scores makes the weights of n positions the products of their keys with the queries;
// whole means that the first begins a run.
func (a *attend) scores(q *cached, t together, n int, whole bool) {
	if whole && a.run == attendRun && a.scoresOfRuns(q, t, n) {
		return
	}
	a.runs(q, t, q.k, n, func(head uint64, rows, weights []float32) {
		dotRows(weights, rows, a.query[head*q.dim:][:q.dim], int(q.width))
	})
}

// weigh turns the scores of n positions into weights, relative to the largest so
// far.
func (a *attend) weigh(n, heads int) {
	if a.weighAtOnce(n, heads) {
		return
	}
	for h := range heads {
		w := a.weights[h*attendStep:][:n]
		a.most[h] = max(a.most[h], largest(w))
		a.sum[h] = expSum(w, w, a.most[h])
	}
}

// values adds the values of n positions, times their weights, to the sums.
func (a *attend) values(q *cached, t together, n int, whole bool) {
	if whole && a.run == attendRun && a.valuesOfRuns(q, t, n) {
		return
	}
	a.runs(q, t, q.v, n, func(head uint64, rows, weights []float32) {
		axpyRows(a.sums[head*q.dim:][:q.dim], rows, weights, int(q.width))
	})
}
