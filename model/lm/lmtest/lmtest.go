// Package lmtest has a language model that computes nothing, for tests of the
// packages that serve one.
package lmtest

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model/lm"
)

// Model continues a text by repeating its words backwards, a byte a token. Set
// fields before the first use, or call Set.
type Model struct {
	// Refuse, if set, decides first about each request.
	Refuse func(r lm.Request) error
	// Pace, if set, releases each token.
	Pace <-chan struct{}
	// FailAfter is the number of tokens of an answer before it ends with Failure,
	// if that is set.
	FailAfter int
	Failure   error

	mu       sync.Mutex
	status   lm.Status
	requests []lm.Request
	askers   []lm.Asker // of requests
	open     int
}

const (
	vocab         = 257 // bytes, and the beginning
	begin         = 256
	mostPositions = 4096
	// Dim of embeddings.
	Dim = 4
)

// New is a ready model.
func New() *Model {
	return &Model{status: lm.Status{
		State:  lm.Ready,
		Device: client.DeviceInfo{Name: "fake0", Backend: "none", State: client.Ready, Epoch: 1, MemoryBytes: 1 << 30},
		Budget: []client.BudgetEntry{{Resource: "deviceMemory", Used: 3 << 20, Limit: 64 << 20, Peak: 4 << 20}},
		Loaded: 1 << 20, Bytes: 1 << 20, Pages: 64, PagePositions: 16,
	}}
}

// Set changes the result of Status.
func (m *Model) Set(change func(s *lm.Status)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.status)
}

// Open is the number of answers that have not been closed.
func (m *Model) Open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open
}

// Requests are the received requests, in order.
func (m *Model) Requests() []lm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Askers are the askers of Requests.
func (m *Model) Askers() []lm.Asker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.askers)
}

// Info implements lm.Model.
func (m *Model) Info() lm.Info {
	return lm.Info{Name: "backwards", Format: "gguf", Parameters: 1234, Bytes: 1 << 20, Context: mostPositions, Vocab: vocab, Dim: Dim, Created: time.Unix(1700000000, 0), ChatStops: []string{"\nUser:"}}
}

// Status implements lm.Model.
func (m *Model) Status() lm.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Running = m.open
	return s
}

// Tokenize implements lm.Model.
func (m *Model) Tokenize(_ context.Context, text string) ([]int32, error) {
	tokens := Tokens(text)
	if len(tokens) > mostPositions {
		return nil, gpuerr.New(gpuerr.Invalid, "prompt: %d tokens; the context has %d", len(tokens), mostPositions)
	}
	return tokens, nil
}

// Tokens are those of a text.
func Tokens(text string) []int32 {
	tokens := []int32{begin}
	for i := range len(text) {
		tokens = append(tokens, int32(text[i]))
	}
	return tokens
}

// Chat implements lm.Model: the contents, a line each.
func (m *Model) Chat(ctx context.Context, messages []lm.Message) ([]int32, error) {
	var text strings.Builder
	for _, one := range messages {
		if one.Role != "system" && one.Role != "user" && one.Role != "assistant" {
			return nil, gpuerr.New(gpuerr.Invalid, "role: %q is none", one.Role)
		}
		text.WriteString(one.Content + "\n")
	}
	return m.Tokenize(ctx, strings.TrimSuffix(text.String(), "\n"))
}

// Embed implements lm.Model: the unit vector that the length of the text picks.
func (m *Model) Embed(_ context.Context, texts []string) ([][]float32, lm.Usage, error) {
	var vectors [][]float32
	var u lm.Usage
	for _, text := range texts {
		v := make([]float32, Dim)
		v[len(text)%Dim] = 1
		vectors = append(vectors, v)
		u.PromptTokens += len(text) + 1
	}
	return vectors, u, nil
}

// Generate implements lm.Model.
func (m *Model) Generate(ctx context.Context, r lm.Request) (lm.Stream, error) {
	m.mu.Lock()
	m.requests = append(m.requests, r)
	m.askers = append(m.askers, lm.AskerOf(ctx))
	m.mu.Unlock()
	if m.Refuse != nil {
		if err := m.Refuse(r); err != nil {
			return nil, err
		}
	}

	if r.Tokens == nil {
		r.Tokens = Tokens(r.Prompt)
	}
	if len(r.Tokens) > mostPositions {
		return nil, gpuerr.New(gpuerr.Invalid, "prompt: %d tokens; the context has %d", len(r.Tokens), mostPositions)
	}
	if r.LogProbs > lm.MaxLogProbs {
		return nil, gpuerr.New(gpuerr.Invalid, "logProbs: %d; at most %d", r.LogProbs, lm.MaxLogProbs)
	}

	m.mu.Lock()
	m.open++
	m.mu.Unlock()
	return newStream(ctx, m, r), nil
}

// stream is an answer.
type stream struct {
	m      *Model
	r      lm.Request
	answer []byte // over and over
	ctx    context.Context
	cancel context.CancelFunc

	turn   chan struct{} // held by the one Next
	closed sync.Once

	mu     sync.Mutex
	sent   int
	text   []byte
	finish lm.Finish
}

func newStream(ctx context.Context, m *Model, r lm.Request) *stream {
	var text []byte
	for _, t := range r.Tokens {
		if t < begin {
			text = append(text, byte(t))
		}
	}
	words := strings.Fields(string(text))
	slices.Reverse(words)
	s := &stream{m: m, r: r, answer: []byte(strings.Join(words, " ") + " "), turn: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// Next implements lm.Stream.
func (s *stream) Next(ctx context.Context, out []lm.Token) (int, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}

	if err := s.end(); err != nil {
		return 0, err
	}

	if s.m.Pace != nil {
		select {
		case <-s.m.Pace:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.ctx.Done():
			return 0, s.end()
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.answer[s.sent%len(s.answer)]
	s.sent++
	s.text = append(s.text, b)
	for _, stop := range s.r.Stop {
		if stop != "" && strings.HasSuffix(string(s.text), stop) {
			s.finish = lm.Stop
		}
	}

	out[0] = lm.Token{ID: int32(b), Text: string(rune(b))}
	if s.r.LogProbs >= 0 {
		out[0].LogProb = -0.5
		for i := range s.r.LogProbs {
			out[0].Top = append(out[0].Top, lm.Alternative{ID: int32(b) + int32(i), Text: []byte{b + byte(i)}, LogProb: -0.5 - float32(i)})
		}
	}

	return 1, nil
}

// end is the reason why no more tokens come.
func (s *stream) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.finish != lm.Unfinished:
		return io.EOF
	case s.ctx.Err() != nil:
		s.finish = lm.Cancelled
		return io.EOF
	case s.m.Failure != nil && s.sent >= s.m.FailAfter:
		return s.m.Failure
	case s.r.MaxTokens > 0 && s.sent >= s.r.MaxTokens, len(s.r.Tokens)+s.sent >= mostPositions:
		s.finish = lm.Length
		return io.EOF
	}
	return nil
}

// Finish implements lm.Stream.
func (s *stream) Finish() lm.Finish {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finish
}

// Usage implements lm.Stream.
func (s *stream) Usage() lm.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lm.Usage{PromptTokens: len(s.r.Tokens), CompletionTokens: s.sent}
}

// Close implements lm.Stream.
func (s *stream) Close() error {
	s.closed.Do(func() {
		s.cancel()
		s.m.mu.Lock()
		s.m.open--
		s.m.mu.Unlock()
	})
	return nil
}
