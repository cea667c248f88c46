package rpc

import (
	"context"
	"errors"
	"io"
	"sync"

	"capgpu/gate/encode"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/model/lm"
	"capgpu/schema"
)

const (
	// maxTokens bounds the tokens of one call of next.
	maxTokens = 1024
	// maxNextBytes bounds the size of the tokens of one call of next, unless a
	// single token is larger: half of a message.
	maxNextBytes = 512 << 10
	// pieceBytes bounds the text of a token in a message; the rest comes later.
	pieceBytes = 4096
)

// stream implements TokenStream.
type stream struct {
	*server
	gate   *rpcguard.Gate
	answer lm.Stream
	most   int           // tokens to take from answer at a time, so that they fit a message
	turn   chan struct{} // held by the one Next
	left   []lm.Token    // taken from answer, but did not fit the last message; guarded by turn
	once   sync.Once
	err    error // of ending
}

func newStream(s *server, gate *rpcguard.Gate, answer lm.Stream, r lm.Request) *stream {
	texts := 1 + max(0, min(r.LogProbs, lm.MaxLogProbs))
	return &stream{
		server: s, gate: gate, answer: answer,
		most: min(maxTokens, maxNextBytes/(texts*(pieceBytes+tokenBytes))), turn: make(chan struct{}, 1),
	}
}

// Next waits for its turn as the answer's own Next does.
func (s *stream) Next(ctx context.Context, call schema.TokenStream_next) error {
	rpcguard.Go(ctx, call.Call) // so that close can pass a call that waits
	most := call.Args().Max()
	if most == 0 {
		return gpuerr.New(gpuerr.Invalid, "max: 0")
	}

	waiting, cancel := context.WithTimeout(ctx, encode.Duration(call.Args().TimeoutNanos()))
	defer cancel()
	tokens, err := s.inTurn(waiting, int(min(most, maxTokens)))
	done := errors.Is(err, io.EOF)
	timeUp := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if err != nil && !done && !timeUp {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetDone(done)
	if err := putTokens(res, tokens); err != nil {
		return err
	}
	if done {
		res.SetFinish(schema.FinishReason(s.answer.Finish()))
	}

	return putUsage(res.NewUsage, s.answer.Usage())
}

func (s *stream) inTurn(ctx context.Context, most int) ([]lm.Token, error) {
	select {
	case s.turn <- struct{}{}: // also without time to wait
	default:
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-s.turn }()
	return s.take(ctx, most)
}

// take returns the next tokens that fit a message, at most most of them. The rest
// stays for the next call.
func (s *stream) take(ctx context.Context, most int) (tokens []lm.Token, err error) {
	if len(s.left) == 0 {
		tokens := make([]lm.Token, min(most, s.most))
		n, err := s.answer.Next(ctx, tokens)
		s.left = tokens[:n]
		if err != nil && n == 0 {
			return nil, err
		}
	}

	n, size := 0, 0
	for n < min(len(s.left), most) {
		if size += sizeOf(&s.left[n]); size > maxNextBytes && n > 0 {
			break
		}
		n++
	}

	tokens, s.left = s.left[:n], s.left[n:]
	return tokens, nil
}

// tokenBytes is the size of a token or an alternative in a message, without its
// text.
const tokenBytes = 48

func sizeOf(t *lm.Token) int {
	size := tokenBytes + len(t.Text)
	for i := range t.Top {
		size += tokenBytes + len(t.Top[i].Text)
	}
	return size
}

func putTokens(res schema.TokenStream_next_Results, tokens []lm.Token) error {
	list, err := res.NewTokens(int32(len(tokens)))
	if err != nil {
		return err
	}

	for i, t := range tokens {
		out := list.At(i)
		out.SetId(t.ID)
		out.SetLogProb(t.LogProb)
		if err := out.SetText(t.Text); err != nil {
			return err
		}
		if len(t.Top) == 0 {
			continue
		}

		top, err := out.NewTop(int32(len(t.Top)))
		if err != nil {
			return err
		}

		for j, a := range t.Top {
			top.At(j).SetId(a.ID)
			top.At(j).SetLogProb(a.LogProb)
			if err := top.At(j).SetText(a.Text); err != nil {
				return err
			}
		}
	}

	return nil
}

func putUsage(alloc func() (schema.Usage, error), u lm.Usage) error {
	out, err := alloc()
	if err != nil {
		return err
	}
	out.SetPromptTokens(uint32(u.PromptTokens))
	out.SetCompletionTokens(uint32(u.CompletionTokens))
	out.SetQueuedNanos(uint64(u.Queued))
	out.SetPrefillNanos(uint64(u.Prefill))
	out.SetDecodeNanos(uint64(u.Decode))
	out.SetDeviceNanos(uint64(u.DeviceTime))
	return nil
}

func (s *stream) Close(context.Context, schema.TokenStream_close) error {
	s.end()
	return s.err
}

// end cancels an unfinished answer and gives the place back, once.
func (s *stream) end() {
	s.once.Do(func() {
		s.err = s.answer.Close()
		s.gate.Revoke(gpuerr.New(gpuerr.Closed, "the stream was closed"))
		<-s.streams
		s.place.Count(0, -1)
	})
}
