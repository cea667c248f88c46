package rpc

import (
	"context"
	"errors"
	"io"
	"sync"

	"capgpu/gate/tell"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/model/lm"
	"capgpu/schema"
)

// maxTokens is the most that one call of next returns.
const maxTokens = 1024

// stream implements TokenStream.
type stream struct {
	*server
	gate   *rpcguard.Gate
	answer lm.Stream
	once   sync.Once
	err    error // of ending
}

// Next waits for its turn as the answer's own Next does.
func (s *stream) Next(ctx context.Context, call schema.TokenStream_next) error {
	rpcguard.Go(ctx, call.Call) // close passes a call that waits
	most := call.Args().Max()
	if most == 0 {
		return gpuerr.New(gpuerr.Invalid, "max: 0")
	}
	waiting, cancel := context.WithTimeout(ctx, tell.Duration(call.Args().TimeoutNanos()))
	defer cancel()
	tokens := make([]lm.Token, min(most, maxTokens))
	n, err := s.answer.Next(waiting, tokens)
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
	if err := putTokens(res, tokens[:n]); err != nil {
		return err
	}
	if done {
		res.SetFinish(schema.FinishReason(s.answer.Finish()))
	}
	return putUsage(res.NewUsage, s.answer.Usage())
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

// end cancels what has not ended and gives the place back, once.
func (s *stream) end() {
	s.once.Do(func() {
		s.err = s.answer.Close()
		s.gate.Revoke(gpuerr.New(gpuerr.Closed, "the stream was closed"))
		<-s.streams
	})
}
