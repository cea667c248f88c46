package server

import (
	"context"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/tokenizer"
)

// Tokenizing is work and memory of this process, some dozen bytes for each of a text.
// So what cannot fit the context is refused by its length, and of the others so many
// are tokenized at a time: long ones by themselves, so that others do not wait for them.
// Requests that wait for that take turns as for passes.
const (
	maxPromptBytes = 4 << 20
	longText       = 64 << 10 // bytes
	longPlaces     = 2
	shortPlaces    = 32
)

// textPlaces are those of texts that are being tokenized.
type textPlaces struct{ long, short desk }

func newTextPlaces() *textPlaces {
	return &textPlaces{long: desk{places: longPlaces}, short: desk{places: shortPlaces}}
}

// take waits for a place for a text of so many bytes.
func (p *textPlaces) take(ctx context.Context, size int) (done func(), err error) {
	if size > longText {
		return p.long.take(ctx)
	}
	return p.short.take(ctx)
}

// desk has so many places, which are taken in turn.
type desk struct {
	places int

	mu sync.Mutex
	// +checklocks:mu
	shares fair[chan struct{}] // of those who wait, and have a place
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

// callLocked gives free places to those whose turn it is.
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

// encodePlain: text from outside says no control tokens.
var encodePlain = tokenizer.Encode{}

// Tokenize implements lm.Model. Text that looks like a control token is text.
func (s *Server) Tokenize(ctx context.Context, prompt string) ([]int32, error) {
	return s.tokensOf(ctx, "prompt", prompt)
}

// tokensOf is the tokens of a text, which errors call by its name.
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
