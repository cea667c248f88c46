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
	r := s.newRequestOf(ctx)
	r.want.embed, r.gen.tokens = make([]float32, s.info.Dim), tokens
	r.want.prompt = len(r.gen.tokens)
	r.out.counted.PromptTokens = r.want.prompt
	r.want.limit = r.want.prompt + 1 // all are fed
	if r.want.prompt == 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "texts: number %d is empty, and the model has no token to begin with", i)
	}
	return r, r.fits(s.room().positions() + 1)
}

// embeddingDone ends a text when its vector is ready.
func (p *pass) embeddingDone(r *request) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for _, x := range r.want.embed {
		if x-x != 0 { // infinite, or NaN
			p.s.endLocked(r, lm.Unfinished, errNoNumbers)
			return
		}
	}
	p.s.endLocked(r, lm.Stop, nil)
}
