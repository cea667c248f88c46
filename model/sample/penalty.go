package sample

import "math"

// changed is a logit before a change.
type changed struct {
	id  int32
	was float32
}

// penalise changes the logits by the bias and by earlier tokens.
func (s *Sampler) penalise() {
	s.changed = s.changed[:0]
	for _, b := range s.bias {
		s.change(b.id, s.work[b.id]+b.by)
	}

	if s.seen == nil {
		return
	}

	for _, id := range s.seen.ids {
		x := s.work[id]
		if r := s.p.Repetition; r != 0 && x > 0 {
			x /= r
		} else if r != 0 {
			x *= r
		}
		s.change(id, x-s.p.Presence-s.p.Frequency*float32(s.seen.count[id]))
	}
}

// change sets a logit, and keeps its old value. The logit stays finite or
// impossible.
func (s *Sampler) change(id int32, to float32) {
	s.changed = append(s.changed, changed{id, s.work[id]})
	s.work[id] = min(to, math.MaxFloat32)
}

// raw is a logit before all changes.
func (s *Sampler) raw(id int32) float32 {
	for _, c := range s.changed {
		if c.id == id {
			return c.was
		}
	}
	return s.work[id]
}

// window counts the last tokens.
type window struct {
	count []int32 // by token
	ids   []int32 // those with a count, in no order
	place []int32 // of a token in ids
	last  []int32 // a ring; empty where all tokens count
	next  int     // place in last
	full  bool
}

// newWindow counts the last tokens; 0: the default number, negative: all.
func newWindow(last, vocab int) *window {
	w := &window{count: make([]int32, vocab), place: make([]int32, vocab)}
	if last == 0 {
		last = defaultLast
	}
	if last > 0 {
		w.last = make([]int32, last)
		w.ids = make([]int32, 0, min(last+1, vocab))
	}
	return w
}

// add counts a token, and forgets the one that leaves the window.
func (w *window) add(id int32) {
	if id < 0 || int(id) >= len(w.count) {
		return
	}
	if w.count[id] == 0 {
		w.place[id] = int32(len(w.ids))
		w.ids = append(w.ids, id)
	}
	if w.count[id] < math.MaxInt32 {
		w.count[id]++
	}
	if len(w.last) == 0 {
		return
	}
	if w.full {
		w.forget(w.last[w.next])
	}

	w.last[w.next] = id
	if w.next++; w.next == len(w.last) {
		w.next, w.full = 0, true
	}
}

// forget takes back one count of a token.
func (w *window) forget(id int32) {
	if w.count[id]--; w.count[id] > 0 {
		return
	}
	end := w.ids[len(w.ids)-1]
	w.ids[w.place[id]], w.place[end] = end, w.place[id]
	w.ids = w.ids[:len(w.ids)-1]
}
