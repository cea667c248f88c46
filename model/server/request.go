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
// Fields that are not guarded belong to the goroutine that runs passes; before
// that, to Generate.
type request struct {
	s   *Server
	who lm.Asker

	// The request itself.
	want struct {
		prompt    int // tokens
		limit     int // most tokens, prompt included
		logprobs  int
		echo      bool // the prompt's likelihoods are delivered
		ignoreEnd bool
		plain     bool // always the most likely token, with nothing to report about it
		embed     []float32
		sampling  sample.Params
	}

	// The generation so far.
	gen struct {
		chooser *sample.Sampler // made when the request begins: it has the size of the vocabulary
		text    answerText
		tokens  []int32 // of prompt and answer
		fed     int     // how many of tokens are in the cache
		echoed  int     // how many of the prompt were delivered, when it is echoed
		seq     sequence
		resets  int // how often a pass of it was reset
	}

	// Server.mu guards everything below.
	state                       requestState
	accepted, begun, firstToken time.Time
	turn                        *share[*request]

	// The stream to the client.
	out struct {
		buf      []lm.Token // made, not pulled
		full     bool       // buf reached Options.Ahead, and is not yet half empty
		counted  lm.Usage   // the result of Usage
		finish   lm.Finish  // finish and err: how it ended
		err      error
		ended    bool
		more     chan struct{} // buffer of one: buf or ended has changed
		pulling  chan struct{} // buffer of one: somebody is in Next
		released chan struct{} // closed when it holds nothing of the device
		detach   func() bool   // ends the watch on Generate's context
	}
}

// newRequestOf makes an empty request of the caller with this context.
func (s *Server) newRequestOf(ctx context.Context) *request {
	r := &request{s: s, who: lm.AskerOf(ctx)}
	r.out.more, r.out.pulling, r.out.released = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	return r
}

type requestState uint8

const (
	waiting   requestState = iota // has never had pages
	running                       // has a sequence
	returning                     // had pages, and wants them again
	parked                        // had pages, and nobody pulls
	gone                          // ended, and holds nothing
)

// newRequest checks a request against the model.
func (s *Server) newRequest(ctx context.Context, q lm.Request) (*request, error) {
	r := s.newRequestOf(ctx)
	r.want.logprobs, r.want.ignoreEnd = max(-1, q.LogProbs), q.IgnoreEnd
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
	if r.gen.tokens, err = s.promptOf(ctx, q); err != nil {
		return nil, err
	}

	r.want.prompt = len(r.gen.tokens)
	if err := s.measure(r, q.MaxTokens); err != nil {
		return nil, err
	}

	r.want.sampling = q.Sampling
	if err := r.want.sampling.Check(s.info.Vocab); err != nil {
		return nil, err
	}
	if !r.want.sampling.Seeded {
		r.want.sampling.Seed, r.want.sampling.Seeded = newSeed(), true
	}

	r.want.sampling.Bias = maps.Clone(r.want.sampling.Bias)
	if r.want.sampling.PenaltyLast >= r.want.limit { // all tokens count, and none is to be forgotten
		r.want.sampling.PenaltyLast = -1
	}

	r.want.plain = r.want.sampling.Plain() && q.LogProbs < 0
	r.gen.text.stop = append([]string(nil), q.Stop...)
	if q.Echo {
		r.echoPrompt()
	} else {
		r.gen.text.decoder = s.words.Decoder(r.gen.tokens...)
	}

	r.out.counted.PromptTokens = r.want.prompt
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

// promptOf returns the tokens of a request, with room for some of the answer.
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

// measure computes how long a request may become, or returns that it never fits.
func (s *Server) measure(r *request, maxTokens int) error {
	r.want.limit = s.info.Context + 1 // the last token of an answer is not fed
	if maxTokens > 0 && maxTokens < r.want.limit-r.want.prompt {
		r.want.limit = r.want.prompt + maxTokens
	}
	most := s.room().positions() + 1
	if maxTokens == 0 {
		r.want.limit = min(r.want.limit, max(most, r.want.prompt+1))
	}
	return r.fits(most)
}

// fits reports whether a request could have all of its positions if at most most
// tokens are possible.
func (r *request) fits(most int) error {
	if r.want.limit <= most {
		return nil
	}
	return noRoom(r.want.limit-1, most-1)
}

func noRoom(asked, available int) error {
	e := gpuerr.Refused(ResourcePositions, uint64(asked), uint64(available))
	e.Msg = "prompt and answer need more positions than the whole cache has; ask for fewer tokens"
	return e
}

// ResourcePositions is the resource of the gpuerr.Quota that the cache's size
// causes.
const ResourcePositions = "positions"

func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// echoPrompt makes the prompt the beginning of the stream: at once, or, if its
// tokens' likelihoods are wanted, each token when its likelihood is known (see
// pass.take).
func (r *request) echoPrompt() {
	r.gen.text.decoder = r.s.words.Decoder()
	r.want.echo = r.want.logprobs >= 0
	r.out.buf = append(r.out.buf, r.echoToken())
	for !r.want.echo && r.gen.echoed < r.want.prompt {
		r.out.buf = append(r.out.buf, r.echoToken())
	}
}

// echoToken returns the next token of the prompt to deliver. Stop strings are
// matched only in the answer.
func (r *request) echoToken() lm.Token {
	id := r.gen.tokens[r.gen.echoed]
	text := r.gen.text.decoder.Add(id)
	if r.gen.echoed++; r.gen.echoed == r.want.prompt {
		text += r.gen.text.decoder.Flush()
	}
	return lm.Token{ID: id, Text: text}
}
