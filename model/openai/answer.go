package openai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"capgpu/gpuerr"
	"capgpu/model/lm"
)

// shape is the shape of an endpoint's answer. The methods return entries of the
// list of choices.
type shape interface {
	heads() (whole, part head)
	reportsTokens() bool // so tokens matter even if they add no text
	opening(c *choice) any
	chunk(c *choice, t lm.Token) any
	closing(c *choice) any
	whole(c *choice) any
}

// head is the beginning of all parts of an answer.
type head struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

type body struct {
	head
	Choices []any `json:"choices"`
	// Usage is null in the chunks of a stream before the one that reports it.
	Usage   any      `json:"usage,omitempty"`
	Timings *timings `json:"timings,omitempty"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// timings are an extension: where the time was spent, summed over all choices.
type timings struct {
	Queued  float64 `json:"queued_ms"`
	Prefill float64 `json:"prefill_ms"`
	Decode  float64 `json:"decode_ms"`
	Device  float64 `json:"device_ms"` // as charged
}

func (a *api) newHead(prefix, object string) head {
	return head{ID: prefix + a.newID(), Object: object, Created: time.Now().Unix(), Model: a.m.Info().Name}
}

// batch is the number of tokens taken from a stream at once.
const batch = 16

// choice is one unfinished answer.
type choice struct {
	index, prompt int
	stream        lm.Stream
	meter         meter

	text     strings.Builder
	tokens   []lm.Token // if they are reported
	offset   int        // code points of the delivered text
	reported bool       // a token was

	finish lm.Finish
	usage  lm.Usage
}

func (c *choice) reason() *string {
	s := c.finish.String()
	return &s
}

// answer starts the requests, n for each prompt, and writes their answers.
func (a *api) answer(w http.ResponseWriter, r *http.Request, c *common, requests []lm.Request, s shape) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	choices, err := a.start(ctx, requests, c.n)
	defer func() {
		for _, c := range choices {
			_ = c.stream.Close() // a finished answer holds nothing; any other is cancelled
		}
	}()

	switch {
	case err != nil:
		a.fail(w, r, err)
	case c.stream:
		a.streamed(ctx, cancel, w, r, c, choices, s)
	default:
		a.gathered(ctx, cancel, w, r, choices, s)
	}
}

// start queues all requests, or none.
func (a *api) start(ctx context.Context, requests []lm.Request, n int) (choices []*choice, err error) {
	for i, q := range requests {
		stream, err := a.m.Generate(ctx, q)
		if err != nil {
			a.metrics.ended(problemOf(err).Code)
			return choices, err
		}
		choices = append(choices, &choice{index: i, prompt: i / n, stream: stream, meter: a.metrics.meter()})
	}
	return choices, nil
}

// all pulls all choices at once. It returns after the last has ended, with the
// error that came first; the others were cancelled.
func (a *api) all(ctx context.Context, cancel context.CancelCauseFunc, choices []*choice, take func(*choice, []lm.Token) error) error {
	var group sync.WaitGroup
	for _, c := range choices {
		group.Go(func() {
			err := pull(ctx, c, take)
			switch {
			case err == nil:
				a.metrics.ended(c.finish.String())
			case ctx.Err() != nil:
				a.metrics.ended(lm.Cancelled.String())
			default:
				a.metrics.ended(problemOf(err).Code)
			}
			if err != nil {
				cancel(err)
			}
		})
	}

	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return nil
}

// pull passes the tokens of a choice to take as they come, and none after the last,
// when finish and usage are known.
func pull(ctx context.Context, c *choice, take func(*choice, []lm.Token) error) error {
	out := make([]lm.Token, batch)
	for {
		n, err := c.stream.Next(ctx, out)
		if n > 0 {
			c.meter.came(n)
			if err := take(c, out[:n]); err != nil {
				return err
			}
		}

		switch {
		case errors.Is(err, io.EOF):
			c.finish, c.usage = c.stream.Finish(), c.stream.Usage()
			if c.finish != lm.Stop && c.finish != lm.Length {
				return gpuerr.New(gpuerr.Closed, "the answer was cut short: %v", c.finish)
			}
			return take(c, nil)
		case err != nil:
			return err
		}
	}
}

// sum is the cost of the choices. A prompt counts once, however many answers it
// has.
func sum(choices []*choice) (*usage, *timings) {
	u, t := &usage{}, &timings{}
	for i, c := range choices {
		if i == 0 || c.prompt != choices[i-1].prompt {
			u.PromptTokens += c.usage.PromptTokens
		}
		u.CompletionTokens += c.usage.CompletionTokens
		t.Queued += milliseconds(c.usage.Queued)
		t.Prefill += milliseconds(c.usage.Prefill)
		t.Decode += milliseconds(c.usage.Decode)
		t.Device += milliseconds(c.usage.DeviceTime)
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u, t
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// known refuses another model's name. A request without a name means this model.
func (a *api) known(name string) error {
	if have := a.m.Info().Name; name != "" && name != have {
		p := invalid("model", "there is no %q here, only %q", clip(name), have)
		p.status = http.StatusNotFound
		return p
	}
	return nil
}

// finite is a probability for JSON: minus infinity becomes OpenAI's -9999, and NaN
// becomes null.
func finite(p float32) *float32 {
	if p != p {
		return nil
	}
	p = min(max(p, -9999), 9999)
	return &p
}

// bytesOf is a token's bytes if the model reported them, else its text.
func bytesOf(t *lm.Token) []byte {
	for _, o := range t.Top {
		if o.ID == t.ID {
			return o.Text
		}
	}
	return []byte(t.Text)
}

// visible is a token in a place for strings only; a part of a character is
// "bytes:\xe2\x96", as OpenAI writes it.
func visible(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	const digits = "0123456789abcdef"
	out := []byte("bytes:")
	for _, c := range b {
		out = append(out, '\\', 'x', digits[c>>4], digits[c&15])
	}
	return string(out)
}
