package figures

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"capgpu/bench/dataplane/llm"
	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
	"capgpu/bench/dataplane/service"
	"capgpu/model"
)

// besideC is P5.
func besideC(ctx context.Context, e *Env) ([]report.Row, error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		e.Say("P5: THERE IS NO PEER, gcc is not installed (Debian: apt-get install gcc)")
		return e.eachModel(func(m *languageModel, f *model.File) ([]report.Row, error) { return m.alone(ctx, e, f) })
	}
	return e.eachModel(func(m *languageModel, f *model.File) ([]report.Row, error) {
		e.Say("P5: %s", m.name)
		floats, err := m.beside(ctx, e, f, true)
		if err != nil {
			return nil, err
		}
		small, err := llm.Int8(f)
		if err != nil {
			return nil, err
		}
		e.Say("P5: %s, int8", m.name)
		bytes, err := m.beside(ctx, e, small, false)
		return []report.Row{floats, bytes}, err
	})
}

// leastAgreed is the minimal part, in percent, of the tokens of C's text that are
// our most likely ones as well, with int8.
const leastAgreed = 80

// beside compares a model with the program in C. With floats both write one text.
// With bytes the program also converts its operands to bytes, and we do not: at
// near ties the texts may diverge, so ours follows its text.
func (m *languageModel) beside(ctx context.Context, e *Env, f *model.File, floats bool) (row report.Row, err error) {
	ours, err := m.serve(ctx, e, f)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()

	c, err := llm.StartPlain(f, func(start func() error) error { return service.OnCPU(peers.ServerCPU, start) })
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	token := llm.First(f)
	left, right := make([]int32, m.tokens), make([]int32, m.tokens)
	mine := paired.Batches(m.tokens, func() error { return ours.Greedy(token, left) })
	theirs := paired.Timed(func() (time.Duration, error) { return c.Greedy(token, right) }).Per(m.tokens)
	r, err := paired.Compare(e.texts(0.5), aside(mine), aside(theirs))
	if err != nil {
		return row, err
	}

	if !floats {
		agreed, err := llm.Agreed(ours, token, right)
		if err != nil {
			return row, err
		}
		if agreed < m.tokens*leastAgreed/100 {
			return row, fmt.Errorf("with int8 ours agrees with C for %d of %d tokens only", agreed, m.tokens)
		}
		metric := fmt.Sprintf("%s: the same with int8 in groups of %d (C multiplies bytes with bytes; agrees for %d of %d tokens)", m.name, f.Weights.Embed.Group, agreed, m.tokens)
		return report.Speed("P5", metric, r, m.p5), nil
	}

	if err := llm.SameTokens(left, right); err != nil {
		return row, fmt.Errorf("ours and that of C: %w", err)
	}

	return report.Speed("P5", m.name+": tokens/s through the service / C, gcc "+llm.PlainFlags+", one thread, the same text", r, m.p5), nil
}

// alone measures the model without a comparison, if there is no compiler.
func (m *languageModel) alone(ctx context.Context, e *Env, f *model.File) (rows []report.Row, err error) {
	ours, err := m.serve(ctx, e, f)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	token, text := llm.First(f), make([]int32, m.tokens)
	side := paired.Batches(m.tokens, func() error { return ours.Greedy(token, text) })
	r, err := paired.Compare(e.texts(0.5), side, side)
	if err != nil {
		return nil, err
	}
	return []report.Row{report.Absolute("P5", m.name+": a token through the service (NO PEER: there is no gcc)", r.Ours)}, nil
}
