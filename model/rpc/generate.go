package rpc

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// maxStreams bounds the unfinished answers of one connection.
const maxStreams = 64

// languageModel implements LanguageModel.
type languageModel struct{ *server }

func (l languageModel) Info(_ context.Context, call schema.LanguageModel_info) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return putInfo(res.NewInfo, l.model)
}

func (l languageModel) Tokenize(ctx context.Context, call schema.LanguageModel_tokenize) error {
	rpcguard.Go(ctx, call.Call) // a long text waits for its turn
	text, err := call.Args().Text()
	if err != nil {
		return badArgument("text", err)
	}
	tokens, err := l.model.Tokenize(ctx, text)
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return putIDs(res.NewTokens, tokens)
}

func (l languageModel) Chat(ctx context.Context, call schema.LanguageModel_chat) error {
	rpcguard.Go(ctx, call.Call)
	in, err := call.Args().Messages()
	if err != nil {
		return badArgument("messages", err)
	}
	tokens, err := readMessages(ctx, in, l.model)
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return putIDs(res.NewTokens, tokens)
}

func putIDs(alloc func(n int32) (capnp.Int32List, error), tokens []int32) error {
	list, err := alloc(int32(len(tokens)))
	if err != nil {
		return err
	}
	for i, t := range tokens {
		list.Set(i, t)
	}
	return nil
}

// Generate returns the stream of an accepted request. The request lives as long as
// the stream, not as the call.
func (l languageModel) Generate(ctx context.Context, call schema.LanguageModel_generate) error {
	rpcguard.Go(ctx, call.Call) // a slow model delays no other call
	in, err := call.Args().Request()
	if err != nil {
		return badArgument("request", err)
	}

	r, err := readRequest(ctx, in, l.model)
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	select {
	case l.streams <- struct{}{}:
	default:
		return gpuerr.New(gpuerr.Busy, "%d answers are on their way on this connection; close one", maxStreams)
	}

	gate := l.root.NewChild()
	answer, err := l.model.Generate(gate.Context(), r)
	if err != nil {
		gate.Revoke(nil)
		<-l.streams
		return err
	}

	l.place.Count(0, +1)
	s := newStream(l.server, gate, answer, r)
	return res.SetStream(schema.TokenStream(rpcguard.Export(rpcguard.Spec{
		Name: "TokenStream", Gate: gate, Impl: s, Log: l.log, Ends: "close",
		Methods: counted(s.place, schema.TokenStream_Methods(nil, s)), Shutdown: s.end,
	})))
}

func badArgument(field string, err error) error {
	return gpuerr.New(gpuerr.Invalid, "%s: %v", field, err)
}
