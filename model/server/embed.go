package server

import (
	"context"
	"fmt"

	"capgpu/gpuerr"
	"capgpu/model/lm"
)

// newEmbedding checks one text.
func (s *Server) newEmbedding(ctx context.Context, i int, text string) (*request, error) {
	tokens, err := s.tokensOf(ctx, fmt.Sprintf("texts: number %d", i), text)
	if err != nil {
		return nil, err
	}
	r := &request{
		s: s, who: lm.AskerOf(ctx), embed: make([]float32, s.info.Dim), tokens: tokens,
		more: make(chan struct{}, 1), pulling: make(chan struct{}, 1), released: make(chan struct{}),
	}
	r.prompt = len(r.tokens)
	r.counted.PromptTokens = r.prompt
	r.limit = r.prompt + 1 // all are fed
	if r.prompt == 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "texts: number %d is empty, and the model has no token to begin with", i)
	}
	return r, r.fits(s.room().positions() + 1)
}

// embeddingDone ends a text whose vector is there.
func (p *pass) embeddingDone(r *request) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for _, x := range r.embed {
		if x-x != 0 { // infinite, or no number
			p.s.endLocked(r, lm.Unfinished, errNoNumbers)
			return
		}
	}
	p.s.endLocked(r, lm.Stop, nil)
}
