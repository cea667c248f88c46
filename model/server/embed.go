package server

import (
	"capgpu/gpuerr"
	"capgpu/model/lm"
)

// newEmbedding checks one text.
func (s *Server) newEmbedding(i int, text string) (*request, error) {
	if len(text) > maxPromptBytes {
		return nil, gpuerr.New(gpuerr.Invalid, "texts: number %d has %d bytes; it may have %d", i, len(text), maxPromptBytes)
	}
	r := &request{
		s: s, tag: embedTag, embed: make([]float32, s.info.Dim), tokens: s.Tokenize(text),
		more: make(chan struct{}, 1), turn: make(chan struct{}, 1), released: make(chan struct{}),
	}
	r.prompt = len(r.tokens)
	r.counted.PromptTokens = r.prompt
	r.limit = r.prompt + 1 // all are fed
	switch {
	case r.prompt == 0:
		return nil, gpuerr.New(gpuerr.Invalid, "texts: number %d is empty, and the model has no token to begin with", i)
	case r.prompt > s.info.Context:
		return nil, gpuerr.New(gpuerr.Invalid, "texts: number %d has %d tokens; the context has %d", i, r.prompt, s.info.Context)
	}
	return r, r.fits(s.room().positions() + 1)
}

// embeddingDone ends a text whose vector is there.
func (p *pass) embeddingDone(r *request) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.endLocked(r, lm.Stop, nil)
}
