package sample

import (
	"math"
	"slices"
)

// small bounds selection by a heap; above it, a partition is used.
const small = 512

// clean makes each logit finite or impossible, and reports whether one is finite.
func clean(logits []float32) bool {
	any := false
	for i, x := range logits {
		switch {
		case x >= -math.MaxFloat32 && x <= math.MaxFloat32:
			any = true
		case x > 0:
			logits[i], any = math.MaxFloat32, true
		default: // NaN, or impossible
			logits[i] = float32(math.Inf(-1))
		}
	}
	return any
}

// softmax holds the parts of a log-probability: log p(x) = (x - most) - rest. The
// two stay apart, because their sum would lose the second beside a large first.
type softmax struct{ most, rest float64 }

func (m softmax) logProb(x float32) float32 { return float32(float64(x) - m.most - m.rest) }

func newSoftmax(logits []float32) softmax {
	most := float64(slices.Max(logits))
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - most)
	}
	return softmax{most, math.Log(sum)}
}

// before reports whether token a ranks before b: by logit, then by number.
func (s *Sampler) before(a, b int32) bool {
	x, y := s.work[a], s.work[b]
	return x > y || x == y && a < b
}

// choose takes a token by the parameters. It returns false if all are impossible.
func (s *Sampler) choose() (int32, bool) {
	best := int32(0)
	for i, x := range s.work {
		if x > s.work[best] {
			best = int32(i)
		}
	}
	if math.IsInf(float64(s.work[best]), -1) {
		return 0, false
	}
	if s.p.Temperature == 0 {
		return best, true
	}
	sum := s.weigh(s.cutK(), s.work[best])
	return s.draw(sum), true
}

// cutK is the last token of the top k, -1 for all.
func (s *Sampler) cutK() int32 {
	k := s.p.TopK
	switch {
	case k == 0 || k >= len(s.work):
		return -1
	case k <= small:
		return s.best(k)[0]
	}
	s.order = s.order[:0]
	for i := range s.work {
		s.order = append(s.order, int32(i))
	}
	return s.prefix(s.order, float64(k), nil)
}

// weigh sets the weights of the remaining tokens, cut by top-p and min-p. last is
// the last remaining token, -1 for all. It returns the sum of the weights.
func (s *Sampler) weigh(last int32, most float32) float64 {
	scale := 1 / float64(s.p.Temperature)
	// There are two passes. A conversion and an exponential in one loop would wait
	// for the previous iteration (the conversion keeps half of its register), which
	// takes five times as long.
	for i, x := range s.work {
		s.weights[i] = (float64(x) - float64(most)) * scale
	}

	sum, count := 0.0, 0
	for i, x := range s.weights {
		w := 0.0
		if last < 0 || !s.before(last, int32(i)) {
			w = math.Exp(x)
			count++
		}
		s.weights[i] = w
		sum += w
	}

	if p := float64(s.p.TopP); p > 0 && p < 1 {
		// The last token of the cut and those after it have more than 1-p together,
		// and none of them is more likely than it, so it has more than its share of
		// that.
		least := (1 - p) * sum / float64(count) * 0.999
		s.order = s.order[:0]
		for i, w := range s.weights {
			if w >= least && w > 0 {
				s.order = append(s.order, int32(i))
			}
		}
		last = s.prefix(s.order, p*sum, s.weights)
	} else if s.p.MinP == 0 {
		return sum
	}

	sum = 0
	for i, w := range s.weights {
		if w < float64(s.p.MinP) || last >= 0 && s.before(last, int32(i)) {
			s.weights[i] = 0
			continue
		}
		sum += w
	}

	return sum
}

// draw takes a token by the weights.
func (s *Sampler) draw(sum float64) int32 {
	at := s.random.Float64() * sum
	last := int32(0)
	for i, w := range s.weights {
		if w == 0 {
			continue
		}
		last = int32(i)
		if at -= w; at < 0 {
			break
		}
	}
	return last
}

// prefix returns the last of the first tokens, by rank, that together weigh need;
// the last of all if all weigh less. Without weights each weighs 1. ids are
// reordered.
func (s *Sampler) prefix(ids []int32, need float64, weights []float64) int32 {
	last := ids[0]
	for len(ids) > 0 {
		n := len(ids) - 1
		p := s.pick(len(ids))
		ids[p], ids[n] = ids[n], ids[p]
		pivot := ids[n]
		first, mass := 0, 0.0
		for i, id := range ids[:n] {
			if !s.before(id, pivot) {
				continue
			}
			ids[i], ids[first] = ids[first], ids[i]
			first++
			if weights == nil {
				mass++
			} else {
				mass += weights[id]
			}
		}

		ids[first], ids[n] = ids[n], ids[first]
		if mass >= need {
			ids = ids[:first]
			continue
		}

		own := 1.0
		if weights != nil {
			own = weights[pivot]
		}

		mass += own
		last = pivot
		if mass >= need {
			return last
		}

		need -= mass
		ids = ids[first+1:]
	}

	return last
}

// pick is any number below n. The selection does not depend on it.
func (s *Sampler) pick(n int) int {
	s.pivot ^= s.pivot << 13
	s.pivot ^= s.pivot >> 17
	s.pivot ^= s.pivot << 5
	return int(uint64(s.pivot) * uint64(n) >> 32)
}

// best returns the first k tokens by rank, as a heap with the last of them at its
// root.
func (s *Sampler) best(k int) []int32 {
	h := s.order[:0]
	for i := range s.work {
		id := int32(i)
		if len(h) < k {
			h = append(h, id)
			for at := len(h) - 1; at > 0 && s.before(h[(at-1)/2], h[at]); at = (at - 1) / 2 {
				h[at], h[(at-1)/2] = h[(at-1)/2], h[at]
			}
		} else if s.before(id, h[0]) {
			h[0] = id
			s.sink(h)
		}
	}
	s.order = h
	return h
}

// sink moves the root of a heap to its place.
func (s *Sampler) sink(h []int32) {
	for at := 0; ; {
		child := 2*at + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && s.before(h[child], h[child+1]) {
			child++
		}
		if !s.before(h[at], h[child]) {
			return
		}
		h[at], h[child] = h[child], h[at]
		at = child
	}
}

// likeliest returns the most likely tokens, by the unchanged logits.
func (s *Sampler) likeliest(n int, m softmax) []TopToken {
	ids := slices.Clone(s.best(min(n, len(s.work))))
	slices.SortFunc(ids, func(a, b int32) int {
		if s.before(a, b) {
			return -1
		}
		return 1
	})
	top := make([]TopToken, 0, len(ids))
	for _, id := range ids {
		if x := s.work[id]; x >= -math.MaxFloat32 {
			top = append(top, TopToken{id, m.logProb(x)})
		}
	}
	return top
}
