package server

import (
	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/sample"
)

// errNoNumbers is the model's fault, not the request's.
var errNoNumbers = gpuerr.New(gpuerr.Internal, "what the model has computed are no numbers: its file is damaged, or was made wrong")

// answer converts a choice to the token that is delivered, and reports whether it
// is the last.
func (r *request) answer(c sample.Choice) (t lm.Token, f lm.Finish) {
	t = lm.Token{ID: c.ID}
	if r.want.logprobs >= 0 {
		t.LogProb, t.Top = c.LogProb, r.s.alternatives(c)
	}
	if r.s.words.IsEnd(c.ID) && !r.want.ignoreEnd {
		t.Text, _ = r.gen.text.rest()
		return t, lm.Stop
	}

	text, stopped := r.gen.text.add(c.ID)
	if !stopped && len(r.gen.tokens) >= r.want.limit {
		var rest string
		f = lm.Length
		rest, stopped = r.gen.text.rest()
		text += rest
	}

	if stopped {
		f = lm.Stop
	}

	t.Text = text
	return t, f
}

func (s *Server) alternatives(c sample.Choice) []lm.Alternative {
	if len(c.Top) == 0 {
		return nil
	}
	out := make([]lm.Alternative, len(c.Top))
	for i, t := range c.Top {
		out[i] = lm.Alternative{ID: t.ID, Text: s.words.Piece(t.ID), LogProb: t.LogProb}
	}
	return out
}

// deliverEcho delivers the next token of a prompt, with its likelihood.
func (p *pass) deliverEcho(r *request, logits []float32) {
	c := likelihood(logits, r.gen.tokens[r.gen.echoed], r.want.logprobs)
	t := r.echoToken()
	t.LogProb, t.Top = c.LogProb, p.s.alternatives(c)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !r.out.ended {
		r.deliverLocked(t)
	}
}
