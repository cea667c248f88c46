package gate

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// maxPatches bounds the patches of one replay, as the ring does.
const maxPatches = 4096

// list implements GpuCommandList.
type list struct {
	object
	recorded *client.List
}

func (s *session) RecordList(ctx context.Context, call schema.GpuSession_recordList) error {
	commands, err := call.Args().Commands()
	if err != nil {
		return badArgument("commands", err)
	}

	b, err := s.readCommands(ctx, commands, client.MaxListCommands)
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	recorded, err := s.client.RecordList(ctx, b.commands...)
	if err != nil {
		return err
	}

	l := &list{object: s.newObject("list", recorded), recorded: recorded}
	return res.SetList(schema.GpuCommandList(s.export(rpcguard.Spec{
		Name: "GpuCommandList", Gate: l.gate, Impl: l, Ends: "close",
		Methods: schema.GpuCommandList_Methods(nil, l), Shutdown: l.shutdown,
	})))
}

func (l *list) Close(ctx context.Context, _ schema.GpuCommandList_close) error { return l.close(ctx) }

// readReplay checks a replay, as far as that is possible without the list's
// commands.
func (s *session) readReplay(in schema.Command_replay) (*client.Replay, error) {
	l, err := rpcguard.Local[*list](capnp.Client(in.List()), "list")
	if err != nil {
		return nil, err
	}
	if l.s != s {
		return nil, gpuerr.New(gpuerr.Invalid, "list: a list of another session")
	}

	patches, err := in.Patches()
	if err != nil {
		return nil, badArgument("patches", err)
	}
	if patches.Len() > maxPatches {
		return nil, gpuerr.New(gpuerr.Invalid, "patches: %d; at most %d", patches.Len(), maxPatches)
	}

	r := &client.Replay{List: l.recorded, Patches: make([]client.Patch, patches.Len())}
	for i := range r.Patches {
		p := patches.At(i)
		inline, err := p.Inline()
		if err != nil {
			return nil, badArgument("patches.inline", err)
		}
		r.Patches[i] = client.Patch{Command: int(p.Command()), At: int(p.At()), Inline: inline, Off: p.Offset(), Len: p.Length()}
	}

	return r, nil
}
