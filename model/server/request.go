package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"maps"
	"time"
	"unicode/utf8"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/sample"
)

// The bounds of a request.
const (
	maxTexts = 2048 // of one Embed
)

// request is one answer on its way, or one text to embed; it is its own lm.Stream.
//
//	waiting ──► running ──► ended
//	              │  ▲
//	              ▼  │ its turn
//	          returning ◄── parked: a pull
//
// What is not guarded is the goroutine's that runs passes; before that, Generate's.
type request struct {
	s   *Server
	who lm.Asker
	// What is asked.
	prompt    int // tokens
	limit     int // most tokens, prompt included
	logprobs  int
	echo      bool // the prompt's likelihoods are told
	ignoreEnd bool
	plain     bool // always the most likely token, and nothing to tell about it
	embed     []float32

	sampling sample.Params
	chooser  *sample.Sampler // made when it begins: it has the size of the vocabulary
	text     answerText
	tokens   []int32 // of prompt and answer
	fed      int     // of tokens: in the cache
	told     int     // of the prompt, where it is echoed
	seq      sequence
	resets   int // times that a pass of it was reset

	state                       requestState // guarded by Server.mu, as all that follows
	accepted, begun, firstToken time.Time
	buf                         []lm.Token // made, not pulled
	full                        bool       // buf has reached Options.Ahead, and is not half empty yet
	turn                        *share[*request]
	counted                     lm.Usage  // what Usage tells
	finish                      lm.Finish // with err: how it ended
	err                         error
	ended                       bool
	more                        chan struct{} // holds one: buf or ended has changed
	pulling                     chan struct{} // holds one: somebody is in Next
	released                    chan struct{} // closed when it holds nothing of the device
	detach                      func() bool   // ends the watch on the context of Generate
}

type requestState uint8

const (
	waiting   requestState = iota // has never had pages
	running                       // has a sequence
	returning                     // had one, and wants it again
	parked                        // had one, and nobody pulls
	gone                          // ended, and holds nothing
)

// newRequest checks a request against the model.
func (s *Server) newRequest(ctx context.Context, q lm.Request) (*request, error) {
	r := &request{
		s: s, who: lm.AskerOf(ctx), logprobs: max(-1, q.LogProbs), ignoreEnd: q.IgnoreEnd,
		more: make(chan struct{}, 1), pulling: make(chan struct{}, 1), released: make(chan struct{}),
	}
	switch {
	case q.MaxTokens < 0:
		return nil, gpuerr.New(gpuerr.Invalid, "maxTokens: %d is negative", q.MaxTokens)
	case q.LogProbs > lm.MaxLogProbs:
		return nil, gpuerr.New(gpuerr.Invalid, "logProbs: %d; there are %d at most", q.LogProbs, lm.MaxLogProbs)
	}
	if err := checkStops(q.Stop); err != nil {
		return nil, err
	}
	var err error
	if r.tokens, err = s.promptOf(ctx, q); err != nil {
		return nil, err
	}
	r.prompt = len(r.tokens)
	if err := s.measure(r, q.MaxTokens); err != nil {
		return nil, err
	}
	r.sampling = q.Sampling
	if err := r.sampling.Check(s.info.Vocab); err != nil {
		return nil, err
	}
	if !r.sampling.Seeded {
		r.sampling.Seed, r.sampling.Seeded = newSeed(), true
	}
	r.sampling.Bias = maps.Clone(r.sampling.Bias)
	if r.sampling.PenaltyLast >= r.limit { // all count, and nothing is to be forgotten
		r.sampling.PenaltyLast = -1
	}
	r.plain = r.sampling.Plain() && q.LogProbs < 0
	r.text.stop = append([]string(nil), q.Stop...)
	if q.Echo {
		r.echoPrompt()
	} else {
		r.text.decoder = s.words.Decoder(r.tokens...)
	}
	r.counted.PromptTokens = r.prompt
	return r, nil
}

func checkStops(stops []string) error {
	if len(stops) > lm.MaxStops {
		return gpuerr.New(gpuerr.Invalid, "stop: %d strings; there may be %d", len(stops), lm.MaxStops)
	}
	for i, stop := range stops {
		switch {
		case stop == "" || len(stop) > lm.MaxStopBytes:
			return gpuerr.New(gpuerr.Invalid, "stop: string %d has %d bytes; it may have 1 to %d", i, len(stop), lm.MaxStopBytes)
		case !utf8.ValidString(stop):
			return gpuerr.New(gpuerr.Invalid, "stop: string %d is not UTF-8", i)
		}
	}
	return nil
}

// promptOf is the tokens of a request, with room for some of the answer.
func (s *Server) promptOf(ctx context.Context, q lm.Request) ([]int32, error) {
	if q.Tokens == nil {
		tokens, err := s.Tokenize(ctx, q.Prompt)
		if err == nil && len(tokens) == 0 {
			err = gpuerr.New(gpuerr.Invalid, "prompt: it is empty, and the model has no token to begin with")
		}
		return tokens, err
	}
	if len(q.Tokens) == 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "tokens: there are none")
	}
	if most := s.info.Context; len(q.Tokens) > most { // before it is copied
		return nil, gpuerr.New(gpuerr.Invalid, "prompt: %d tokens; the context has %d positions", len(q.Tokens), most)
	}
	for i, t := range q.Tokens {
		if t < 0 || int(t) >= s.info.Vocab {
			return nil, gpuerr.New(gpuerr.Invalid, "tokens: element %d is %d; the vocabulary has %d", i, t, s.info.Vocab)
		}
	}
	return append([]int32(nil), q.Tokens...), nil
}

// measure says how long a request may become, or that it never fits.
func (s *Server) measure(r *request, maxTokens int) error {
	r.limit = s.info.Context + 1 // the last token of an answer is not fed
	if maxTokens > 0 && maxTokens < r.limit-r.prompt {
		r.limit = r.prompt + maxTokens
	}
	most := s.room().positions() + 1
	if maxTokens == 0 {
		r.limit = min(r.limit, max(most, r.prompt+1))
	}
	return r.fits(most)
}

// fits says whether a request could have all of its positions, if most tokens can be.
func (r *request) fits(most int) error {
	if r.limit <= most {
		return nil
	}
	return noRoom(r.limit-1, most-1)
}

func noRoom(asked, available int) error {
	e := gpuerr.Refused(ResourcePositions, uint64(asked), uint64(available))
	e.Msg = "prompt and answer need more positions than the whole cache has; ask for fewer tokens"
	return e
}

// ResourcePositions is the resource of a gpuerr.Quota that the cache's size refuses.
const ResourcePositions = "positions"

func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// echoPrompt makes the prompt the beginning of the stream: at once, or where the
// likelihoods of its tokens are wanted, each when it is known (see pass.take).
func (r *request) echoPrompt() {
	r.text.decoder = r.s.words.Decoder()
	r.echo = r.logprobs >= 0
	r.buf = append(r.buf, r.echoToken())
	for !r.echo && r.told < r.prompt {
		r.buf = append(r.buf, r.echoToken())
	}
}

// echoToken is the next token of the prompt to tell. Stop strings are looked for in the
// answer only.
func (r *request) echoToken() lm.Token {
	id := r.tokens[r.told]
	text := r.text.decoder.Add(id)
	if r.told++; r.told == r.prompt {
		text += r.text.decoder.Flush()
	}
	return lm.Token{ID: id, Text: text}
}
