package figures

import (
	"context"
	"errors"
	"fmt"
	"time"

	"capgpu/bench/dataplane/llm"
	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
	"capgpu/bench/dataplane/service"
	"capgpu/model"
	"capgpu/model/llama"
)

const (
	promptTokens = 64
	crowdTexts   = 8
	bitSteps     = 64 // steps with logits that are compared to the bit
)

// languageModel is a model of P4 and P5.
type languageModel struct {
	name   string
	tokens int // of a text
	open   func(e *Env) (*model.File, error)
	p4, p5 report.Target
}

// languageModels are the models by their names in -models. The text of the smaller
// one is as long as its reference; that of the larger one takes about a tenth of a
// second.
var languageModels = map[string]languageModel{
	"260k": {"stories260K", 256, stories, report.AtLeast(0.90, 0.97), report.AtLeast(0.8, 1)},
	"15m":  {"15M shape", 32, shaped("15m"), report.AtLeast(0.95, 0.97), report.AtLeast(0.8, 1.2)},
}

// ModelNames are the possible Options.Models.
var ModelNames = []string{"260k", "15m"}

// stories is the real model, or one of its shape.
func stories(e *Env) (*model.File, error) {
	f, err := llm.Stories()
	if !errors.Is(err, llm.ErrNoStories) {
		return f, err
	}
	e.Say("SKIPPED: %v; a made-up model of the same shape takes its place", err)
	return shaped("260k")(e)
}

func shaped(shape string) func(*Env) (*model.File, error) {
	return func(*Env) (*model.File, error) { return llm.Shaped(shape) }
}

// eachModel calls f with every requested model.
func (e *Env) eachModel(f func(m *languageModel, file *model.File) ([]report.Row, error)) (rows []report.Row, err error) {
	for _, name := range e.Models {
		m, ok := languageModels[name]
		if !ok {
			return nil, fmt.Errorf("there is no model %q; there are %v", name, ModelNames)
		}
		file, err := m.open(e)
		if err != nil {
			return nil, err
		}
		of, err := f(&m, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		rows = append(rows, of...)
	}
	return rows, nil
}

func (m *languageModel) options() llama.Options {
	return llama.Options{Sequences: crowdTexts, Context: m.tokens + promptTokens, Batch: promptTokens}
}

// serve loads a model into the service.
func (m *languageModel) serve(ctx context.Context, e *Env, f *model.File) (*llm.Served, error) {
	return llm.Serve(ctx, e.Service.Socket, f, m.options(), m.options().Context)
}

// throughService is P4.
func throughService(ctx context.Context, e *Env) ([]report.Row, error) {
	return e.eachModel(func(m *languageModel, f *model.File) (rows []report.Row, err error) {
		ours, err := m.serve(ctx, e, f)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ours.Close()) }()

		peer, err := llm.NewInProcess(f, m.options(), crowdTexts, promptTokens)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, peer.Close()) }()

		if err := onPeerCPU(func() error { return llm.SameBits(ours, peer, llm.First(f), min(bitSteps, m.tokens)) }); err != nil {
			return nil, fmt.Errorf("the logits differ: %w", err)
		}

		for _, c := range m.comparisons(f, ours, peer) {
			e.Say("P4: %s: %s", m.name, c.what)
			r, err := paired.Compare(e.texts(c.part), aside(paired.Batches(c.tokens, c.ours)), elsewhere(paired.Batches(c.tokens, c.peer)))
			if err == nil {
				err = c.same()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.what, err)
			}
			rows = append(rows, report.Speed("P4", m.name+": "+c.what, r, c.target))
		}

		return rows, nil
	})
}

// longer is the factor by which a slice is longer for texts: one of the small model
// takes 5 ms, and a median needs several.
const longer = 4

// texts are the options of a comparison of texts of one of the models.
func (e *Env) texts(part float64) paired.Options {
	o := e.pairs(part / float64(len(e.Models)))
	o.Slice *= longer
	return o
}

// comparison is one comparison of P4.
type comparison struct {
	what       string
	part       float64 // of the figure's time
	tokens     int     // that one call makes or takes
	ours, peer func() error
	same       func() error // the last results of both are the same
	target     report.Target
}

// comparisons are the comparisons of a model. Each call leaves its tokens behind.
func (m *languageModel) comparisons(f *model.File, ours *llm.Served, peer *llm.InProcess) []comparison {
	token := llm.First(f)
	left, right := make([]int32, m.tokens), make([]int32, m.tokens)
	same := func() error { return llm.SameTokens(left, right) }
	all := []comparison{
		{
			what: "tokens/s, decoded ahead on the device / the same kernels in-process", part: 0.5, tokens: m.tokens, same: same, target: m.p4,
			ours: func() error { return ours.Greedy(token, left) },
			peer: func() error { return peer.Greedy(token, right) },
		},
		{
			what: "the same, the host chooses each token from the logits", part: 0.25, tokens: m.tokens, same: same,
			ours: func() error { return llm.Sampled(ours, token, left) },
			peer: func() error { return llm.Sampled(peer, token, right) },
		},
	}

	prompt := make([]int32, promptTokens)
	for i := range prompt {
		prompt[i] = int32(3 + i%256) // the bytes
	}

	var next [2]int32
	all = append(all, comparison{
		what: fmt.Sprintf("a prompt of %d tokens in one pass, tokens/s", promptTokens), part: 0.125, tokens: promptTokens,
		ours: func() (err error) { next[0], err = llm.Prompt(ours, prompt); return err },
		peer: func() (err error) { next[1], err = llm.Prompt(peer, prompt); return err },
		same: func() error { return llm.SameTokens(next[:1], next[1:]) },
	})

	texts := func() (out [][]int32) {
		for range crowdTexts {
			out = append(out, make([]int32, m.tokens/4))
		}
		return out
	}

	ourTexts, peerTexts := texts(), texts()
	return append(all, comparison{
		what: fmt.Sprintf("%d texts together, tokens/s of all of them", crowdTexts), part: 0.125, tokens: crowdTexts * (m.tokens / 4),
		ours: func() error { return llm.Crowd(ours, token, ourTexts) },
		peer: func() error { return llm.Crowd(peer, token, peerTexts) },
		same: func() error {
			for i := range ourTexts {
				if err := llm.SameTokens(ourTexts[i], peerTexts[i]); err != nil {
					return fmt.Errorf("text %d: %w", i, err)
				}
			}
			return nil
		},
	})
}

// onPeerCPU does something on the driver's CPU, so that both sides of a comparison
// compute on the same one.
func onPeerCPU(f func() error) error { return service.OnCPU(peers.ServerCPU, f) }

// driverSleeps is after how long an idle driver has stopped polling.
const driverSleeps = 2 * time.Millisecond

// aside is a side that waits until the other side's processes are idle.
func aside(s paired.Side) paired.Side {
	return func(slice time.Duration, add func(float64)) error {
		time.Sleep(driverSleeps)
		return s(slice, add)
	}
}

// elsewhere is a side that runs on the driver's CPU, while the driver sleeps.
func elsewhere(s paired.Side) paired.Side {
	return func(slice time.Duration, add func(float64)) error {
		time.Sleep(driverSleeps)
		return onPeerCPU(func() error { return s(slice, add) })
	}
}
