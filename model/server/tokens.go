package server

import (
	"context"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/tokenizer"
)

// Tokenizing costs time and memory of this process, some dozen bytes for each byte
// of a text. A text that cannot fit the context is therefore refused by its length,
// and only a bounded number of the others is tokenized at a time. Long texts have
// places of their own, so that short ones do not wait for them. Requests take turns
// for these places as for passes.
const (
	maxPromptBytes = 4 << 20
	longText       = 64 << 10 // bytes
	longPlaces     = 2
	shortPlaces    = 32
)

// textPlaces are the places for texts that are being tokenized.
type textPlaces struct{ long, short desk }

func newTextPlaces() *textPlaces {
	return &textPlaces{long: desk{places: longPlaces}, short: desk{places: shortPlaces}}
}

// take waits for a place for a text of size bytes.
func (p *textPlaces) take(ctx context.Context, size int) (done func(), err error) {
	if size > longText {
		return p.long.take(ctx)
	}
	return p.short.take(ctx)
}

// desk has a fixed number of places, which are taken in turn.
type desk struct {
	places int

	mu sync.Mutex
	// +checklocks:mu
	shares fair[chan struct{}] // of the waiting texts and of those with a place
}

// take waits for a place.
func (d *desk) take(ctx context.Context) (done func(), err error) {
	called := make(chan struct{})
	d.mu.Lock()
	s := d.shares.put(lm.AskerOf(ctx), called)
	d.callLocked()
	d.mu.Unlock()

	select {
	case <-called:
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		if s.use.places > 0 {
			s.give()
		} else {
			s.leave()
		}
		s.gone()
		d.callLocked()
		return nil, ctx.Err()
	}

	since := time.Now()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		s.charge(time.Since(since))
		s.give()
		s.gone()
		d.callLocked()
	}, nil
}

// callLocked gives free places to texts in the order of their turns.
//
// +checklocks:d.mu
func (d *desk) callLocked() {
	for d.shares.all.use.places < d.places {
		s := d.shares.next()
		if s == nil {
			return
		}
		s.take()
		close(s.item)
	}
}

// encodePlain encodes text from outside, in which control tokens are plain text.
var encodePlain = tokenizer.Encode{}

// Tokenize implements lm.Model. It treats text that looks like a control token as
// text.
func (s *Server) Tokenize(ctx context.Context, prompt string) ([]int32, error) {
	return s.tokensOf(ctx, "prompt", prompt)
}

// tokensOf tokenizes a text. Errors call it by name.
func (s *Server) tokensOf(ctx context.Context, name, text string) ([]int32, error) {
	if len(text) > maxPromptBytes {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: %d bytes; it may have %d", name, len(text), maxPromptBytes)
	}

	most := s.info.Context
	ok := s.words.CanFit(len(text), most)
	var tokens []int32
	if ok {
		done, err := s.texts.take(ctx, len(text))
		if err != nil {
			return nil, err
		}
		defer done()
		tokens, ok = s.words.EncodeMost(most, encodePlain, tokenizer.Part{Text: text})
	}

	if !ok {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: more than %d tokens, which is what the context has positions for", name, most)
	}

	return tokens, nil
}

// Chat implements lm.Model.
func (s *Server) Chat(ctx context.Context, messages []lm.Message) ([]int32, error) {
	size := 0
	for _, m := range messages {
		if size += len(m.Content); size > maxPromptBytes {
			return nil, gpuerr.New(gpuerr.Invalid, "messages: more than %d bytes", maxPromptBytes)
		}
	}
	done, err := s.texts.take(ctx, size)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.chat(s.info.Context, messages)
}
