package sample

import (
	"math"
	"math/rand/v2"
	"sort"
)

// slow is the obvious sampler: it sorts the vocabulary for every token.
type slow struct {
	p      Params
	vocab  int
	came   []int32
	random *rand.Rand
}

func newSlow(p Params, vocab int) *slow {
	return &slow{p: p, vocab: vocab, random: rand.New(rand.NewPCG(p.Seed, 0x6361706770750001))}
}

func (s *slow) next(logits []float32) (id int32, logProb float64, kept []int32, ok bool) {
	raw := make([]float32, len(logits))
	any := false
	for i, x := range logits {
		if x != x {
			x = float32(math.Inf(-1))
		}
		raw[i] = min(x, math.MaxFloat32)
		any = any || !math.IsInf(float64(raw[i]), -1)
	}

	if !any {
		return 0, 0, nil, false
	}

	work := s.penalised(raw)
	ids := make([]int32, len(work))
	for i := range ids {
		ids[i] = int32(i)
	}

	sort.SliceStable(ids, func(a, b int) bool { return work[ids[a]] > work[ids[b]] })
	if math.IsInf(float64(work[ids[0]]), -1) {
		return 0, 0, nil, false
	}

	kept = s.keep(ids, work)
	id = s.draw(kept, work)
	s.came = append(s.came, id)

	most, sum := math.Inf(-1), 0.0
	for _, x := range raw {
		most = max(most, float64(x))
	}

	for _, x := range raw {
		sum += math.Exp(float64(x) - most)
	}

	return id, float64(raw[id]) - most - math.Log(sum), kept, true
}

// penalised recounts the earlier tokens for every token.
func (s *slow) penalised(raw []float32) []float32 {
	work := append([]float32(nil), raw...)
	for id, by := range s.p.Bias {
		work[id] = min(work[id]+by, math.MaxFloat32)
	}

	last := s.p.PenaltyLast
	if last == 0 {
		last = 64
	}

	came := s.came
	if last > 0 && len(came) > last {
		came = came[len(came)-last:]
	}

	times := map[int32]int{}
	for _, id := range came {
		times[id]++
	}

	for id, n := range times {
		x := work[id]
		switch {
		case s.p.Repetition == 0:
		case x > 0:
			x /= s.p.Repetition
		default:
			x *= s.p.Repetition
		}
		work[id] = min(x-s.p.Presence-s.p.Frequency*float32(n), math.MaxFloat32)
	}

	return work
}

// keep cuts the sorted tokens by top-k, top-p and min-p, one after the other.
func (s *slow) keep(ids []int32, work []float32) []int32 {
	if s.p.Temperature == 0 {
		return ids[:1]
	}
	if s.p.TopK > 0 && s.p.TopK < len(ids) {
		ids = ids[:s.p.TopK]
	}

	weight := func(id int32) float64 { return s.weight(work, ids[0], id) }
	sum := 0.0
	for _, id := range ids {
		sum += weight(id)
	}

	if s.p.TopP > 0 && s.p.TopP < 1 {
		mass := 0.0
		for i, id := range ids {
			if mass += weight(id); mass >= float64(s.p.TopP)*sum {
				ids = ids[:i+1]
				break
			}
		}
	}

	for len(ids) > 1 && weight(ids[len(ids)-1]) < float64(s.p.MinP) {
		ids = ids[:len(ids)-1]
	}

	return ids
}

func (s *slow) weight(work []float32, best, id int32) float64 {
	return math.Exp((float64(work[id]) - float64(work[best])) / float64(s.p.Temperature))
}

// draw goes through the kept tokens by number.
func (s *slow) draw(kept []int32, work []float32) int32 {
	if s.p.Temperature == 0 {
		return kept[0]
	}

	best := kept[0]
	ids := append([]int32(nil), kept...)
	sort.Slice(ids, func(a, b int) bool { return ids[a] < ids[b] })
	sum := 0.0
	for _, id := range ids {
		sum += s.weight(work, best, id)
	}

	at := s.random.Float64() * sum
	for _, id := range ids {
		if at -= s.weight(work, best, id); at < 0 {
			return id
		}
	}

	return ids[len(ids)-1]
}
