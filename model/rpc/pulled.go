package rpc

import (
	"context"
	"io"
	"math"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/schema"
)

// Generate implements lm.Model. Only the fields of the schema reach the server;
// Echo does not. The asker is the connection.
func (m *Client) Generate(ctx context.Context, r lm.Request) (lm.Stream, error) {
	asked, release := m.model.Generate(ctx, func(p schema.LanguageModel_generate_Params) error {
		out, err := p.NewRequest()
		if err != nil {
			return err
		}
		return putRequest(out, r)
	})
	defer release()
	res, err := asked.Struct()
	if err != nil {
		return nil, fromServer(ctx, err)
	}
	s := &pulled{stream: res.Stream().AddRef()}
	s.forget = context.AfterFunc(ctx, func() { _ = s.end() })
	return s, nil
}

func putRequest(out schema.GenerateRequest, r lm.Request) error {
	if r.MaxTokens < 0 || r.MaxTokens > math.MaxInt32 {
		return gpuerr.New(gpuerr.Invalid, "maxTokens: %d", r.MaxTokens)
	}

	out.SetMaxTokens(uint32(r.MaxTokens))
	out.SetLogProbs(int32(max(min(r.LogProbs, math.MaxInt32), -1)))
	out.SetIgnoreEnd(r.IgnoreEnd)
	if r.Tokens != nil {
		list, err := out.Prompt().NewTokens(int32(len(r.Tokens)))
		if err != nil {
			return err
		}
		for i, t := range r.Tokens {
			list.Set(i, t)
		}
	} else if err := out.Prompt().SetText(r.Prompt); err != nil {
		return err
	}

	stops, err := out.NewStop(int32(len(r.Stop)))
	if err != nil {
		return err
	}

	for i, s := range r.Stop {
		if err := stops.Set(i, s); err != nil {
			return err
		}
	}

	p, err := out.NewSampling()
	if err != nil {
		return err
	}

	p.SetTemperature(r.Sampling.Temperature)
	p.SetTopK(uint32(r.Sampling.TopK))
	p.SetTopP(r.Sampling.TopP)
	p.SetMinP(r.Sampling.MinP)
	p.SetRepetitionPenalty(r.Sampling.Repetition)
	p.SetPresencePenalty(r.Sampling.Presence)
	p.SetFrequencyPenalty(r.Sampling.Frequency)
	p.SetPenaltyLast(int32(r.Sampling.PenaltyLast))
	p.SetSeeded(r.Sampling.Seeded)
	p.SetSeed(r.Sampling.Seed)
	biases, err := p.NewBias(int32(len(r.Sampling.Bias)))
	if err != nil {
		return err
	}

	i := 0
	for id, value := range r.Sampling.Bias {
		biases.At(i).SetId(id)
		biases.At(i).SetValue(value)
		i++
	}

	return nil
}

// pulled is an answer of a remote server.
type pulled struct {
	stream schema.TokenStream
	forget func() bool
	once   sync.Once

	mu sync.Mutex
	// +checklocks:mu
	finish lm.Finish
	// +checklocks:mu
	used lm.Usage
}

// Next implements lm.Stream.
func (s *pulled) Next(ctx context.Context, out []lm.Token) (int, error) {
	if len(out) == 0 {
		return 0, gpuerr.New(gpuerr.Invalid, "out: no room")
	}
	for {
		n, err := s.next(ctx, out)
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (s *pulled) next(ctx context.Context, out []lm.Token) (int, error) {
	asked, release := s.stream.Next(ctx, func(p schema.TokenStream_next_Params) error {
		p.SetMax(uint32(min(len(out), maxTokens)))
		p.SetTimeoutNanos(math.MaxUint64)
		return nil
	})

	defer release()
	res, err := asked.Struct()
	if err != nil {
		return 0, fromServer(ctx, err)
	}

	tokens, err := res.Tokens()
	if err != nil {
		return 0, err
	}

	n := min(tokens.Len(), len(out))
	for i := range n {
		if out[i], err = token(tokens.At(i)); err != nil {
			return 0, err
		}
	}

	u, err := res.Usage()
	if err != nil {
		return 0, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = usage(u)
	if n == 0 && res.Done() {
		s.finish = lm.Finish(res.Finish())
		return 0, io.EOF
	}

	return n, nil
}

func token(in schema.Token) (lm.Token, error) {
	text, err := in.Text()
	if err != nil {
		return lm.Token{}, err
	}

	t := lm.Token{ID: in.Id(), Text: text, LogProb: in.LogProb()}
	top, err := in.Top()
	if err != nil {
		return lm.Token{}, err
	}

	for i := range top.Len() {
		a := top.At(i)
		text, err := a.Text()
		if err != nil {
			return lm.Token{}, err
		}
		t.Top = append(t.Top, lm.Alternative{ID: a.Id(), Text: append([]byte(nil), text...), LogProb: a.LogProb()})
	}

	return t, nil
}

// Finish implements lm.Stream.
func (s *pulled) Finish() lm.Finish {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finish
}

// Usage implements lm.Stream.
func (s *pulled) Usage() lm.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Close implements lm.Stream.
func (s *pulled) Close() error {
	s.forget()
	return s.end()
}

// end ends the stream, once. The end of a context may call it before Generate
// returns.
func (s *pulled) end() (err error) {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), askPatience)
		defer cancel()
		closed, release := s.stream.Close(ctx, nil)
		defer release()
		_, err = closed.Struct()
		s.stream.Release()
	})
	return fromServer(context.Background(), err)
}

func usage(u schema.Usage) lm.Usage {
	return lm.Usage{
		PromptTokens: int(u.PromptTokens()), CompletionTokens: int(u.CompletionTokens()),
		Queued: time.Duration(u.QueuedNanos()), Prefill: time.Duration(u.PrefillNanos()),
		Decode: time.Duration(u.DecodeNanos()), DeviceTime: time.Duration(u.DeviceNanos()),
	}
}
