package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/lm"
)

// The memory of an answer that is not streamed, until it is written, including its
// encoding: for a byte of the text, for a reported token, for an alternative, and
// for a byte of those. Their texts are written twice, once as numbers.
const (
	costOfText = 4
	costOfTold = 256
	costOfByte = 24
)

// costOf is the memory of a token.
func costOf(t *lm.Token, reported bool) int64 {
	n := costOfText * int64(len(t.Text))
	if !reported {
		return n
	}
	n += costOfTold + costOfByte*int64(len(t.Text))
	for i := range t.Top {
		n += costOfTold + costOfByte*int64(len(t.Top[i].Text))
	}
	return n
}

// hold is one answer's part of the memory for all answers that are not streamed.
type hold struct {
	a        *api
	who      lm.Asker
	reported bool
	taken    atomic.Int64
}

// take reserves the memory of tokens.
func (h *hold) take(tokens []lm.Token) error {
	var n int64
	for i := range tokens {
		n += costOf(&tokens[i], h.reported)
	}

	own := h.taken.Add(n)
	if own <= h.a.o.MaxAnswerBytes && h.a.gathering.Take(n, h.who.Peer, h.who.User) {
		return nil
	}

	h.taken.Add(-n)
	if own > h.a.o.MaxAnswerBytes {
		field := "max_tokens"
		if h.reported {
			field = "logprobs"
		}
		return invalid(field, "the answer takes more than %d bytes; ask for less, or for a stream", h.a.o.MaxAnswerBytes)
	}

	return gpuerr.New(gpuerr.Busy, "answers that are not streamed take more than your share of %d bytes; try again, or ask for a stream", h.a.o.MaxGatheredBytes)
}

func (h *hold) release() { h.a.gathering.Give(h.taken.Swap(0), h.who.Peer, h.who.User) }

// gathered sends the whole answer.
func (a *api) gathered(ctx context.Context, cancel context.CancelCauseFunc, w http.ResponseWriter, r *http.Request, choices []*choice, s shape) {
	h := &hold{a: a, who: lm.AskerOf(ctx), reported: s.reportsTokens()}
	defer h.release()
	err := a.all(ctx, cancel, choices, func(c *choice, tokens []lm.Token) error {
		if err := h.take(tokens); err != nil {
			return err
		}
		for i := range tokens {
			c.text.WriteString(tokens[i].Text)
		}
		if s.reportsTokens() {
			c.tokens = append(c.tokens, tokens...)
		}
		return nil
	})
	if err != nil {
		a.fail(w, r, err)
		return
	}

	whole, _ := s.heads()
	switch begun, err := a.writeChoices(w, whole, choices, s); {
	case err != nil && begun:
		a.log.Error("answer cannot be written", "path", r.URL.Path, "error", err)
	case err != nil:
		a.fail(w, r, err)
	}
}

// writeChoices writes a body as encoding/json would, but one choice at a time, so
// that only one of them is in memory as JSON. If it cannot finish, the written part
// is no valid JSON.
func (a *api) writeChoices(w http.ResponseWriter, whole head, choices []*choice, s shape) (begun bool, err error) {
	var b bytes.Buffer
	flush := func() {
		begun = true
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(a.o.WriteTimeout))
		_, _ = w.Write(b.Bytes()) // a client that is gone needs no answer
		b.Reset()
	}

	w.Header().Set("Content-Type", "application/json")
	if err := encode(&b, whole); err != nil {
		return begun, err
	}

	b.Truncate(b.Len() - len("}\n"))
	b.WriteString(`,"choices":[`)
	for i, c := range choices {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encode(&b, s.whole(c)); err != nil {
			return begun, err
		}
		c.tokens = nil
		b.Truncate(b.Len() - len("\n"))
		if b.Len() > smallBytes {
			flush()
		}
	}

	u, t := sum(choices)
	last, err := json.Marshal(struct {
		Usage   *usage   `json:"usage"`
		Timings *timings `json:"timings"`
	}{u, t})
	if err != nil {
		return begun, err
	}

	b.WriteString("],")
	b.Write(last[len("{"):])
	b.WriteByte('\n')
	flush()
	return begun, nil
}

// byteList is bytes as a list of numbers.
type byteList []byte

// MarshalJSON implements json.Marshaler.
func (l byteList) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, 2+4*len(l))
	out = append(out, '[')
	for i, b := range l {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendByte(out, b)
	}
	return append(out, ']'), nil
}

func appendByte(out []byte, b byte) []byte {
	if b >= 100 {
		out = append(out, '0'+b/100)
	}
	if b >= 10 {
		out = append(out, '0'+b/10%10)
	}
	return append(out, '0'+b%10)
}
