package server

import (
	"math"

	"capgpu/model/sample"
)

// likelihood returns the log-probability of a prompt's token, and with top above 0
// the most likely tokens. It uses the raw logits, as sample does for an answer's
// tokens.
func likelihood(logits []float32, id int32, top int) sample.Choice {
	most := math.Inf(-1)
	for _, x := range logits {
		if x := float64(x); x > most { // false for NaN
			most = x
		}
	}

	sum := 0.0
	for _, x := range logits {
		if e := math.Exp(float64(x) - most); !math.IsNaN(e) {
			sum += e
		}
	}

	total := most + math.Log(sum)
	c := sample.Choice{ID: id, LogProb: logProb(logits[id], total)}
	if top <= 0 {
		return c
	}

	best := make([]int32, 0, top+1)
	for i, x := range logits {
		at := len(best)
		for at > 0 && x > logits[best[at-1]] {
			at--
		}
		if at == top || x != x {
			continue
		}
		best = append(best, 0)
		copy(best[at+1:], best[at:])
		best[at] = int32(i)
		best = best[:min(len(best), top)]
	}

	c.Top = make([]sample.TopToken, len(best))
	for i, id := range best {
		c.Top[i] = sample.TopToken{ID: id, LogProb: logProb(logits[id], total)}
	}

	return c
}

func logProb(x float32, total float64) float32 {
	if p := float64(x) - total; !math.IsNaN(p) {
		return float32(p)
	}
	return float32(math.Inf(-1))
}
