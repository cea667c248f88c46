package llm

import (
	"context"
	"errors"
	"fmt"

	"capgpu/client"
	"capgpu/model"
	"capgpu/model/llama"
)

// Served is a model in a session of the service.
type Served struct {
	ctx       context.Context
	session   *client.Session
	model     *llama.Model
	sequences []*llama.Sequence
	rows      []llama.Row
}

// Serve opens a session at a tenant's socket and loads a model into it. Every
// sequence has room for positions from the beginning. The caller closes it; ctx
// applies to everything that it does.
func Serve(ctx context.Context, socket string, f *model.File, o llama.Options, positions int) (_ *Served, err error) {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	session, err := conn.Open(ctx, 0)
	if err != nil {
		return nil, err
	}

	s := &Served{ctx: ctx, session: session}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()

	if s.model, err = llama.Load(ctx, session, f, o); err != nil {
		return nil, err
	}

	for range s.model.Info().Sequences {
		q, err := s.model.NewSequence()
		if err != nil {
			return nil, err
		}
		s.sequences = append(s.sequences, q)
		if err := q.Reserve(positions); err != nil {
			return nil, err
		}
	}

	return s, nil
}

// Greedy begins a text with a token and fills out with the next ones, several
// passes ahead on the device.
func (s *Served) Greedy(token int32, out []int32) error {
	at := 0
	err := s.model.Greedy(s.ctx, s.sequences[0], token, 0, len(out), func(next int32) bool {
		out[at] = next
		at++
		return true
	})
	if err == nil && at < len(out) {
		err = fmt.Errorf("the text ended after %d of %d tokens", at, len(out))
	}
	return err
}

// Step is one pass.
func (s *Served) Step(rows []Row) error {
	s.rows = s.rows[:0]
	for _, r := range rows {
		s.rows = append(s.rows, llama.Row{Seq: s.sequences[r.Sequence], Position: r.Position, Token: r.Token, Logits: r.Logits})
	}
	return s.model.Step(s.ctx, s.rows)
}

// Logits are those of the i-th row that asked in the last pass, until the next.
func (s *Served) Logits(i int) []float32 { return s.model.Logits(i) }

// DeviceNanos is the device time of all passes so far, as charged.
func (s *Served) DeviceNanos() int64 { return s.model.DeviceTime().Nanoseconds() }

// Close removes the model from the session and closes the session.
func (s *Served) Close() (err error) {
	if s.model != nil {
		err = s.model.Close(s.ctx)
	}
	return errors.Join(err, s.session.Close(s.ctx))
}
