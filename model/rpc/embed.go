package rpc

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// maxTexts bounds the texts of one call.
const maxTexts = 64

// embedder implements Embedder.
type embedder struct{ *server }

func (e embedder) Info(_ context.Context, call schema.Embedder_info) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return putInfo(res.NewInfo, e.model)
}

func (e embedder) Embed(ctx context.Context, call schema.Embedder_embed) error {
	rpcguard.Go(ctx, call.Call)
	list, err := call.Args().Texts()
	if err != nil {
		return badArgument("texts", err)
	}
	if list.Len() > maxTexts {
		return gpuerr.New(gpuerr.Invalid, "texts: %d; at most %d", list.Len(), maxTexts)
	}

	texts := make([]string, list.Len())
	for i := range texts {
		if texts[i], err = list.At(i); err != nil {
			return badArgument("texts", err)
		}
	}

	vectors, usage, err := e.model.Embed(ctx, texts)
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	out, err := res.NewEmbeddings(int32(len(vectors)))
	if err != nil {
		return err
	}

	for i, v := range vectors {
		row, err := capnp.NewFloat32List(res.Segment(), int32(len(v)))
		if err != nil {
			return err
		}
		for j, x := range v {
			row.Set(j, x)
		}
		if err := out.Set(i, row.ToPtr()); err != nil {
			return err
		}
	}

	return putUsage(res.NewUsage, usage)
}
