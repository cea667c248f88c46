package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/sample"
)

// pass is what the runner does next, and its memory from one pass to the next.
type pass struct {
	s *Server
	l *loaded

	rows []row
	in   []part // requests that have rows in it
	asks []ask  // rows that ask for logits, in their order

	all, decoding, prefilling, embedding []*request

	pace    pace
	prompts bool // the last pass of which the batch has less than 4 rows was of prompts
}

// part is the rows of one request in a pass.
type part struct {
	r    *request
	rows int
}

// ask is a row whose logits are wanted: those after the last token, or, to tell how
// likely a prompt is, after one before.
type ask struct {
	r    *request
	echo bool
}

// work is what a pass is.
type work uint8

const (
	nothing work = iota
	step         // rows of all
	ahead        // one request alone, several tokens without looking
	embed        // one text
)

// serve runs passes until ctx or the session ends, and says why: the error that those get
// who had begun.
func (s *Server) serve(ctx context.Context, l *loaded) error {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-l.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-watched }()
	p := &pass{s: s, l: l}
	for {
		var err error
		work, r, n := p.compose()
		since, cost := time.Now(), l.deviceTime()
		switch work {
		case nothing:
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
		case step:
			err = l.step(ctx, p.rows)
			p.pace.took(len(p.rows), time.Since(since))
		case ahead:
			err = p.decodeAhead(ctx, r, n)
		case embed:
			err = l.embed(ctx, r.seq, r.tokens, r.embed)
		}
		if work != nothing {
			p.charge(time.Since(since), l.deviceTime()-cost)
		}
		stopped := ctx.Err() != nil // looked at first: the end of the session is an end of ctx
		select {
		case <-l.over: // whatever err says
			return l.why()
		default:
		}
		if stopped {
			return nil
		}
		if err != nil {
			if l.broken() != nil {
				return truth(l, err)
			}
			p.failed(err)
			continue
		}
		switch work {
		case step:
			if err := p.take(); err != nil {
				return truth(l, err)
			}
		case embed:
			p.embeddingDone(r)
		}
	}
}

// compose frees and admits, and picks the rows of the next pass.
func (p *pass) compose() (w work, r *request, n int) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attention.Store(false)
	s.reapLocked()
	s.admitLocked()
	p.rows, p.in, p.asks = p.rows[:0], p.in[:0], p.asks[:0]

	decoding, prefilling, embedding := p.decoding[:0], p.prefilling[:0], p.embedding[:0]
	p.all = append(p.all[:0], s.running...)
	for _, r := range p.all { // older ones first: they take from younger ones
		switch {
		case r.state != running || r.ended || r.full:
		case r.embed != nil:
			embedding = append(embedding, r)
		case !s.growLocked(r, len(r.tokens)):
		case len(r.tokens)-r.fed == 1:
			decoding = append(decoding, r)
		default:
			prefilling = append(prefilling, r)
		}
	}
	decoding, prefilling, embedding = stillRunning(decoding), stillRunning(prefilling), stillRunning(embedding)
	p.decoding, p.prefilling, p.embedding = decoding, prefilling, embedding

	if r := firstOf(embedding); r != nil {
		if x := firstOf(append(append(p.all[:0], decoding...), prefilling...)); x == nil || r.turn.before(x.turn) {
			p.in = append(p.in, part{r, len(r.tokens)})
			return embed, r, 0
		}
	}
	if len(decoding) == 1 && len(prefilling)+len(embedding) == 0 && decoding[0].plain {
		r := decoding[0]
		if n := p.aheadLocked(r); n > 1 {
			p.in = append(p.in, part{r, 1})
			return ahead, r, n
		}
	}
	p.pick(decoding, prefilling)
	if len(p.rows) == 0 {
		return nothing, nil, 0
	}
	return step, nil, 0
}

// stillRunning leaves out who had to give its pages up to an older one.
func stillRunning(all []*request) []*request {
	kept := all[:0]
	for _, r := range all {
		if r.state == running && !r.ended {
			kept = append(kept, r)
		}
	}
	return kept
}

// firstOf is the one that goes first; nil: there is none.
func firstOf(all []*request) (first *request) {
	for _, r := range all {
		if first == nil || r.turn.before(first.turn) {
			first = r
		}
	}
	return first
}

// inTurn sorts by who goes first.
func inTurn(all []*request) {
	slices.SortFunc(all, func(a, b *request) int {
		switch {
		case a == b:
			return 0
		case a.turn.before(b.turn):
			return -1
		}
		return 1
	})
}

// pick takes one row of each that decodes, and what is left of the batch for prompts: at
// least a quarter of it, so that neither starves the other. The batch is what the pace
// allows; where not all fit, those go first who have had less time.
func (p *pass) pick(decoding, prefilling []*request) {
	batch := p.pace.most(p.s.size.batch)
	forPrompts := 0
	if len(prefilling) > 0 {
		forPrompts = batch / 4
		if forPrompts == 0 { // in turn
			if p.prompts = !p.prompts; p.prompts {
				forPrompts = 1
			}
		}
	}
	inTurn(decoding)
	inTurn(prefilling)
	n := min(len(decoding), batch-forPrompts)
	for _, r := range decoding[:n] {
		p.feed(r, 1)
	}
	left := batch - n
	for _, r := range prefilling {
		count := min(left, len(r.tokens)-r.fed)
		p.feed(r, count)
		left -= count
	}
}

// feed adds the next rows of r.
func (p *pass) feed(r *request, count int) {
	if count == 0 {
		return
	}
	p.in = append(p.in, part{r, count})
	for i := r.fed; i < r.fed+count; i++ {
		last := i == len(r.tokens)-1
		echo := r.echo && i+1 >= r.told && i+1 < r.prompt
		p.rows = append(p.rows, row{seq: r.seq, position: i, token: r.tokens[i], logits: last || echo})
		if last || echo {
			p.asks = append(p.asks, ask{r, echo})
		}
	}
}

// charge shares what a pass has cost among those in it.
func (p *pass) charge(wall, device time.Duration) {
	rows := 0
	for _, in := range p.in {
		rows += in.rows
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.totals.Steps++
	p.s.totals.Busy += wall
	for _, in := range p.in {
		in.r.counted.DeviceTime += device * time.Duration(in.rows) / time.Duration(max(1, rows))
		in.r.turn.charge(wall * time.Duration(in.rows) / time.Duration(max(1, rows)))
	}
}

// take reads the logits of a step that went well. An error is that the session has ended
// since.
func (p *pass) take() error {
	for _, in := range p.in {
		in.r.fed += in.rows
	}
	for i, a := range p.asks {
		logits, err := p.l.logits(i)
		if err != nil {
			return err
		}
		if a.echo {
			p.tellEcho(a.r, logits)
			continue
		}
		c, err := a.r.chooser.Next(logits, a.r.logprobs)
		if errors.Is(err, sample.ErrNoNumbers) {
			err = errNoNumbers
		}
		if err != nil {
			p.end(a.r, lm.Unfinished, err)
			continue
		}
		p.next(a.r, c)
	}
	return nil
}

// next takes the token that follows, and says whether more are wanted now.
func (p *pass) next(r *request, c sample.Choice) bool {
	s := p.s
	if c.ID < 0 || int(c.ID) >= s.info.Vocab {
		p.end(r, lm.Unfinished, errNoNumbers)
		return false
	}
	r.tokens = append(r.tokens, c.ID)
	t, f := r.answer(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ended {
		return false
	}
	now := time.Now()
	if r.firstToken.IsZero() {
		r.firstToken = now
		r.counted.Prefill = now.Sub(r.begun)
	}
	r.counted.Decode = now.Sub(r.firstToken)
	r.counted.CompletionTokens++
	s.totals.CompletionTokens++
	r.tellLocked(t)
	if f != lm.Unfinished {
		s.endLocked(r, f, nil)
		return false
	}
	return !r.full
}

// errNoNumbers is the model's fault, not a request's.
var errNoNumbers = gpuerr.New(gpuerr.Internal, "what the model has computed are no numbers: its file is damaged, or was made wrong")

// answer is a token as it is told, and whether it is the last.
func (r *request) answer(c sample.Choice) (t lm.Token, f lm.Finish) {
	t = lm.Token{ID: c.ID}
	if r.logprobs >= 0 {
		t.LogProb, t.Top = c.LogProb, r.s.alternatives(c)
	}
	if r.s.words.IsEnd(c.ID) && !r.ignoreEnd {
		t.Text, _ = r.text.rest()
		return t, lm.Stop
	}
	text, stopped := r.text.add(c.ID)
	if !stopped && len(r.tokens) >= r.limit {
		var rest string
		f = lm.Length
		rest, stopped = r.text.rest()
		text += rest
	}
	if stopped {
		f = lm.Stop
	}
	t.Text = text
	return t, f
}

func (s *Server) alternatives(c sample.Choice) []lm.Alternative {
	if len(c.Top) == 0 {
		return nil
	}
	out := make([]lm.Alternative, len(c.Top))
	for i, t := range c.Top {
		out[i] = lm.Alternative{ID: t.ID, Text: s.words.Piece(t.ID), LogProb: t.LogProb}
	}
	return out
}

// tellEcho tells the next token of a prompt, with how likely it was.
func (p *pass) tellEcho(r *request, logits []float32) {
	c := likelihood(logits, r.tokens[r.told], r.logprobs)
	t := r.echoToken()
	t.LogProb, t.Top = c.LogProb, p.s.alternatives(c)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !r.ended {
		r.tellLocked(t)
	}
}

func (p *pass) end(r *request, f lm.Finish, err error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.endLocked(r, f, err)
}

// failed ends those in a pass that was refused, or made no sense, and harmed nobody else.
func (p *pass) failed(err error) {
	for _, in := range p.in {
		p.end(in.r, lm.Unfinished, err)
	}
}
