package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"capgpu/model/lm"
	"capgpu/model/sample"
)

// pass is the runner's next pass, and its state from one pass to the next.
type pass struct {
	s *Server
	l *loaded

	rows []row
	in   []part // requests with rows in the pass
	asks []ask  // rows that ask for logits, in order

	all, decoding, prefilling, embedding []*request

	pace    pace
	prompts bool // the last pass with fewer than 4 rows left in its batch was of prompts
}

// part is the rows of one request in a pass.
type part struct {
	r    *request
	rows int
}

// ask is a row with wanted logits: the row of the last token, or, to report a
// prompt's likelihoods, the row of an earlier one.
type ask struct {
	r    *request
	echo bool
}

// work is the kind of a pass.
type work uint8

const (
	nothing  work = iota
	step          // rows of all
	runAhead      // one request alone, several tokens without a check between them
	embed         // one text
)

// serve runs passes until ctx or the session ends. It returns why: the error with
// which requests that have begun end.
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
			case <-s.signal.wake:
			case <-ctx.Done():
			}
		case step:
			err = l.step(ctx, p.rows)
			p.pace.took(len(p.rows), time.Since(since))
		case runAhead:
			err = p.decodeRunAhead(ctx, r, n)
		case embed:
			err = l.embed(ctx, r.gen.seq, r.gen.tokens, r.want.embed)
		}

		if work != nothing {
			p.charge(time.Since(since), l.deviceTime()-cost)
		}

		stopped := ctx.Err() != nil // checked first, because the end of the session also ends ctx
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
				return translate(l, err)
			}
			p.failed(err)
			continue
		}

		switch work {
		case step:
			if err := p.take(); err != nil {
				return translate(l, err)
			}
		case embed:
			p.embeddingDone(r)
		}
	}
}

// compose frees and admits requests, and picks the rows of the next pass.
func (p *pass) compose() (w work, r *request, n int) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()

	s.signal.attention.Store(false)
	s.reapLocked()
	s.admitLocked()
	p.rows, p.in, p.asks = p.rows[:0], p.in[:0], p.asks[:0]

	decoding, prefilling, embedding := p.decoding[:0], p.prefilling[:0], p.embedding[:0]
	p.all = append(p.all[:0], s.requests.running...)
	for _, r := range p.all { // older ones first: they take from younger ones
		switch {
		case r.state != running || r.out.ended || r.out.full:
		case r.want.embed != nil:
			embedding = append(embedding, r)
		case !s.growLocked(r, len(r.gen.tokens)):
		case len(r.gen.tokens)-r.gen.fed == 1:
			decoding = append(decoding, r)
		default:
			prefilling = append(prefilling, r)
		}
	}

	decoding, prefilling, embedding = stillRunning(decoding), stillRunning(prefilling), stillRunning(embedding)
	p.decoding, p.prefilling, p.embedding = decoding, prefilling, embedding

	if r := firstOf(embedding); r != nil {
		if x := firstOf(append(append(p.all[:0], decoding...), prefilling...)); x == nil || r.turn.before(x.turn) {
			p.in = append(p.in, part{r, len(r.gen.tokens)})
			return embed, r, 0
		}
	}

	if len(decoding) == 1 && len(prefilling)+len(embedding) == 0 && decoding[0].want.plain {
		r := decoding[0]
		if n := p.runAheadLocked(r); n > 1 {
			p.in = append(p.in, part{r, 1})
			return runAhead, r, n
		}
	}

	p.pick(decoding, prefilling)
	if len(p.rows) == 0 {
		return nothing, nil, 0
	}

	return step, nil, 0
}

// stillRunning leaves out the requests that had to give their pages up to an older
// one.
func stillRunning(all []*request) []*request {
	kept := all[:0]
	for _, r := range all {
		if r.state == running && !r.out.ended {
			kept = append(kept, r)
		}
	}
	return kept
}

// firstOf returns the request that goes first; nil: there is none.
func firstOf(all []*request) (first *request) {
	for _, r := range all {
		if first == nil || r.turn.before(first.turn) {
			first = r
		}
	}
	return first
}

// inTurn sorts requests into the order of their turns.
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

// pick takes one row of each request that decodes, and fills the rest of the batch
// with rows of prompts. Prompts get at least a quarter of it, so that neither kind
// starves the other. The pace bounds the batch; where not all fit, the requests
// that have had less time go first.
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
		count := min(left, len(r.gen.tokens)-r.gen.fed)
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
	for i := r.gen.fed; i < r.gen.fed+count; i++ {
		last := i == len(r.gen.tokens)-1
		echo := r.want.echo && i+1 >= r.gen.echoed && i+1 < r.want.prompt
		p.rows = append(p.rows, row{seq: r.gen.seq, position: i, token: r.gen.tokens[i], logits: last || echo})
		if last || echo {
			p.asks = append(p.asks, ask{r, echo})
		}
	}
}

// charge divides the cost of a pass among its requests.
func (p *pass) charge(wall, device time.Duration) {
	rows := 0
	for _, in := range p.in {
		rows += in.rows
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.status.totals.Steps++
	p.s.status.totals.Busy += wall
	for _, in := range p.in {
		in.r.out.counted.DeviceTime += device * time.Duration(in.rows) / time.Duration(max(1, rows))
		in.r.turn.charge(wall * time.Duration(in.rows) / time.Duration(max(1, rows)))
	}
}

// take reads the logits of a step that succeeded. An error means that the session
// has ended since.
func (p *pass) take() error {
	for _, in := range p.in {
		in.r.gen.fed += in.rows
	}

	for i, a := range p.asks {
		logits, err := p.l.logits(i)
		if err != nil {
			return err
		}
		if a.echo {
			p.deliverEcho(a.r, logits)
			continue
		}

		c, err := a.r.gen.chooser.Next(logits, a.r.want.logprobs)
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

// next appends the chosen token to a request, and reports whether it wants more
// now.
func (p *pass) next(r *request, c sample.Choice) bool {
	s := p.s
	if c.ID < 0 || int(c.ID) >= s.info.Vocab {
		p.end(r, lm.Unfinished, errNoNumbers)
		return false
	}

	r.gen.tokens = append(r.gen.tokens, c.ID)
	t, f := r.answer(c)
	s.mu.Lock()
	defer s.mu.Unlock()

	if r.out.ended {
		return false
	}

	now := time.Now()
	if r.firstToken.IsZero() {
		r.firstToken = now
		r.out.counted.Prefill = now.Sub(r.begun)
	}

	r.out.counted.Decode = now.Sub(r.firstToken)
	r.out.counted.CompletionTokens++
	s.status.totals.CompletionTokens++
	r.deliverLocked(t)
	if f != lm.Unfinished {
		s.endLocked(r, f, nil)
		return false
	}

	return !r.out.full
}

func (p *pass) end(r *request, f lm.Finish, err error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.endLocked(r, f, err)
}

// failed ends the requests of a pass that was refused or made no sense, and that
// harmed no other.
func (p *pass) failed(err error) {
	for _, in := range p.in {
		p.end(in.r, lm.Unfinished, err)
	}
}
