package server

import (
	"context"
	"time"

	"capgpu/model/llama"
)

// llamaEngine adapts a llama.Model to the server.
type llamaEngine struct {
	m    *llama.Model
	z    size
	rows []llama.Row
	row  []float32 // that logits returned
}

func sizeOf(m *llama.Model) size {
	i := m.Info()
	return size{sequences: i.Sequences, context: i.Context, batch: i.Batch, pages: i.Pages, pagePositions: i.PagePositions}
}

func (e *llamaEngine) size() size                { return e.z }
func (e *llamaEngine) deviceTime() time.Duration { return e.m.DeviceTime() }
func (e *llamaEngine) broken() error             { return e.m.Err() }

func (e *llamaEngine) logits(i int) (_ []float32, err error) {
	e.row, err = e.m.CopyLogits(e.row[:0], i)
	return e.row, err
}

func (e *llamaEngine) newSequence() (sequence, error) {
	q, err := e.m.NewSequence()
	if err != nil {
		return nil, err // a typed nil must not become an interface
	}
	return q, nil
}

func (e *llamaEngine) step(ctx context.Context, rows []row) error {
	e.rows = e.rows[:0]
	for _, r := range rows {
		e.rows = append(e.rows, llama.Row{Seq: r.seq.(*llama.Sequence), Position: r.position, Token: r.token, Logits: r.logits})
	}
	return e.m.Step(ctx, e.rows)
}

func (e *llamaEngine) greedy(ctx context.Context, q sequence, token int32, position, n int, yield func(token int32) bool) error {
	return e.m.Greedy(ctx, q.(*llama.Sequence), token, position, n, yield)
}

func (e *llamaEngine) embed(ctx context.Context, q sequence, tokens []int32, out []float32) error {
	return e.m.Embed(ctx, q.(*llama.Sequence), tokens, out)
}
