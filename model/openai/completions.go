package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"capgpu/model/lm"
)

// completion is POST /v1/completions.
type completion struct {
	common
	prompts []lm.Request // with only Prompt or Tokens set
}

// defaultTokens is the length of a completion without max_tokens, as in OpenAI's
// API. A chat runs to its end.
const defaultTokens = 16

func (a *api) parseCompletion(f fields) (c completion, err error) {
	if c.common, err = a.common(f); err != nil {
		return c, err
	}
	if c.request.MaxTokens, err = f.most("max_tokens", defaultTokens); err != nil {
		return c, err
	}
	if c.request.Echo, err = f.flag("echo"); err != nil {
		return c, err
	}

	top, err := f.integer("logprobs", 0, lm.MaxLogProbs, -1)
	if err != nil {
		return c, err
	}

	c.request.LogProbs = int(top)
	if c.prompts, err = a.prompts(f); err != nil {
		return c, err
	}
	if len(c.prompts)*c.n > a.o.MaxChoices {
		return c, invalid("n", "%d prompts %d times are more than %d answers", len(c.prompts), c.n, a.o.MaxChoices)
	}

	return c, nil
}

// prompts reads a string, tokens, or a list of either. Without a prompt a text
// begins.
func (a *api) prompts(f fields) (prompts []lm.Request, err error) {
	const name = "prompt"
	raw, ok := f[name]
	if !ok {
		return []lm.Request{{}}, nil
	}
	if raw[0] == '"' {
		s, err := textOf(name, raw, len(raw))
		return []lm.Request{{Prompt: s}}, err
	}

	var first byte // of the first element, which decides the kind of the list
	if err := each(name, raw, 1, func(_ int, raw json.RawMessage) error { first = raw[0]; return nil }); first == 0 {
		if err == nil {
			err = invalid(name, "is empty")
		}
		return nil, err
	}

	if first != '"' && first != '[' {
		tokens, err := a.tokens(name, raw)
		return []lm.Request{{Tokens: tokens}}, err
	}

	err = each(name, raw, a.o.MaxChoices, func(i int, raw json.RawMessage) (err error) {
		var p lm.Request
		if first == '"' {
			p.Prompt, err = textOf(at(name, i), raw, len(raw))
		} else {
			p.Tokens, err = a.tokens(at(name, i), raw)
		}
		prompts = append(prompts, p)
		return err
	})
	return prompts, err
}

func (a *api) completions(ctx context.Context, f fields) (http.HandlerFunc, error) {
	c, err := a.parseCompletion(f)
	if err != nil {
		return nil, err
	}
	if err := a.tokenize(ctx, &c); err != nil {
		return nil, err
	}
	return func(w http.ResponseWriter, r *http.Request) { a.complete(w, r, &c) }, nil
}

// tokenize converts prompts with several answers to tokens, once, and large
// prompts, so that their text is not kept while they are answered.
func (a *api) tokenize(ctx context.Context, c *completion) error {
	for i := range c.prompts {
		p := &c.prompts[i]
		if p.Tokens != nil || c.n == 1 && len(p.Prompt) <= smallBytes {
			continue
		}
		tokens, err := a.m.Tokenize(ctx, p.Prompt)
		if err != nil {
			return err
		}
		if len(tokens) > 0 { // otherwise Generate reports the error
			*p = lm.Request{Tokens: tokens}
		}
	}
	return nil
}

func (a *api) complete(w http.ResponseWriter, r *http.Request, c *completion) {
	var requests []lm.Request
	for _, p := range c.prompts {
		for i := range c.n {
			requests = append(requests, c.nth(p, i))
		}
	}
	a.answer(w, r, &c.common, requests, &textShape{
		head: a.newHead("cmpl-", "text_completion"), logprobs: c.request.LogProbs >= 0, echo: c.request.Echo,
	})
}

// nth is the request for one of n answers to a prompt: a seed gives each its own.
func (c *common) nth(prompt lm.Request, i int) lm.Request {
	q := c.request
	q.Prompt, q.Tokens = prompt.Prompt, prompt.Tokens
	if q.Sampling.Seeded {
		q.Sampling.Seed += uint64(i)
	}
	return q
}

// textShape is the shape of completions.
type textShape struct {
	head     head
	logprobs bool
	echo     bool // the prompt comes first; its first token has no probability
}

type textChoice struct {
	Index        int           `json:"index"`
	Text         string        `json:"text"`
	LogProbs     *textLogProbs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

// textLogProbs are lists with an entry for each token. TextOffset counts code
// points of the answer.
type textLogProbs struct {
	Tokens        []string              `json:"tokens"`
	TokenLogProbs []*float32            `json:"token_logprobs"`
	TopLogProbs   []map[string]*float32 `json:"top_logprobs"`
	TextOffset    []int                 `json:"text_offset"`
}

func (s *textShape) heads() (whole, part head) { return s.head, s.head }
func (s *textShape) reportsTokens() bool       { return s.logprobs }
func (s *textShape) opening(*choice) any       { return nil }

func (s *textShape) chunk(c *choice, t lm.Token) any {
	return textChoice{Index: c.index, Text: t.Text, LogProbs: s.probs(c, []lm.Token{t})}
}

func (s *textShape) closing(c *choice) any {
	return textChoice{Index: c.index, FinishReason: c.reason()}
}

func (s *textShape) whole(c *choice) any {
	return textChoice{Index: c.index, Text: c.text.String(), LogProbs: s.probs(c, c.tokens), FinishReason: c.reason()}
}

func (s *textShape) probs(c *choice, tokens []lm.Token) *textLogProbs {
	if !s.logprobs {
		return nil
	}

	l := &textLogProbs{Tokens: []string{}, TokenLogProbs: []*float32{}, TopLogProbs: []map[string]*float32{}, TextOffset: []int{}}
	for i := range tokens {
		t := &tokens[i]
		top := map[string]*float32{}
		for _, o := range t.Top {
			top[visible(o.Text)] = finite(o.LogProb)
		}
		own := finite(t.LogProb)
		if s.echo && !c.reported {
			own, top = nil, nil
		}
		c.reported = true
		l.Tokens = append(l.Tokens, visible(bytesOf(t)))
		l.TokenLogProbs = append(l.TokenLogProbs, own)
		l.TopLogProbs = append(l.TopLogProbs, top)
		l.TextOffset = append(l.TextOffset, c.offset)
		c.offset += utf8.RuneCountInString(t.Text)
	}

	return l
}
