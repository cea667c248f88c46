package gate

import (
	"context"
	"errors"
	"sync"

	"capnproto.org/go/capnp/v3"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// maxNameBytes bounds the name of a program.
const maxNameBytes = 256

// program implements GpuProgram.
type program struct {
	s    *session
	code *client.Program
	gate *rpcguard.Gate

	mu sync.Mutex
	// runners are the sessions below that have run it; nil once it is closed.
	// +checklocks:mu
	runners map[*session]struct{}
}

func (s *session) exportProgram(code *client.Program) schema.GpuProgram {
	p := &program{s: s, code: code, gate: s.gate.NewChild(), runners: map[*session]struct{}{}}
	return schema.GpuProgram(s.export(rpcguard.Spec{
		Name: "GpuProgram", Gate: p.gate, Impl: p, Ends: "close",
		Methods:  schema.GpuProgram_Methods(nil, p),
		Shutdown: func() { _ = p.close(context.Background()) },
	}))
}

func checkName(name, field string) error {
	if name == "" || len(name) > maxNameBytes {
		return gpuerr.New(gpuerr.Invalid, "%s: a name of %d bytes is not from 1 to %d bytes long", field, len(name), maxNameBytes)
	}
	return nil
}

func (s *session) OpenProgram(ctx context.Context, call schema.GpuProgramSession_openProgram) error {
	name, err := call.Args().Name()
	if err != nil {
		return badArgument("name", err)
	}
	if err := checkName(name, "name"); err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	code, err := s.client.OpenProgram(ctx, name)
	if err != nil {
		return err
	}

	return res.SetProgram(s.exportProgram(code))
}

func (s *session) LoadProgram(ctx context.Context, call schema.GpuSession_loadProgram) error {
	rpcguard.Go(ctx, call.Call) // verification is slow
	bundle, err := call.Args().Bundle()
	if err != nil {
		return badArgument("bundle", err)
	}
	if len(bundle) == 0 {
		return gpuerr.New(gpuerr.Invalid, "bundle: empty")
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	code, err := s.client.LoadProgram(ctx, bundle)
	if err != nil {
		return err
	}

	return res.SetProgram(s.exportProgram(code))
}

// programNamed opens a program of the registry once and keeps it.
func (s *session) programNamed(ctx context.Context, name string) (*client.Program, error) {
	if err := checkName(name, "program"); err != nil {
		return nil, err
	}

	s.mu.Lock()
	code := s.named[name]
	s.mu.Unlock()
	if code != nil {
		return code, nil
	}

	code, err := s.client.OpenProgram(ctx, name)
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.named[name] = code
	return code, nil
}

// close is idempotent. It also ends the program's use in the sessions below.
func (p *program) close(ctx context.Context) error {
	err := p.code.Close(ctx)
	p.gate.Revoke(gpuerr.New(gpuerr.Closed, "the program was closed"))
	p.endHanded(ctx)
	return err
}

func (p *program) Close(ctx context.Context, _ schema.GpuProgram_close) error { return p.close(ctx) }

func (p *program) Info(_ context.Context, call schema.GpuProgram_info) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	out, err := res.NewInfo()
	if err != nil {
		return err
	}
	return putProgramInfo(out, p.code.Info())
}

func putProgramInfo(out schema.ProgramInfo, info client.ProgramInfo) error {
	out.SetInlineBytes(info.InlineBytes)
	out.SetSharedBytes(info.SharedBytes)
	out.SetBlockX(info.Block.X)
	out.SetBlockY(info.Block.Y)
	out.SetBlockZ(info.Block.Z)
	out.SetBlockFree(info.BlockFree)
	out.SetDynamicElementBytes(info.DynamicElementBytes)
	out.SetStackBytes(info.StackBytes)
	out.SetOrderDependent(info.OrderDependent)
	out.SetToleranceAbs(info.ToleranceAbs)
	out.SetToleranceRel(info.ToleranceRel)
	bindings, err := out.NewBindings(int32(len(info.Bindings)))
	if err != nil {
		return err
	}

	inline, err := out.NewInline(int32(len(info.Inline)))
	if err != nil {
		return err
	}

	errs := []error{
		out.SetName(info.Name), out.SetDigest(info.Digest[:]),
		putTexts(out.NewFeatures, info.Features), putTexts(out.NewWarnings, info.Warnings),
	}

	for i, b := range info.Bindings {
		bindings.At(i).SetAccess(access(b.Access))
		errs = append(errs, bindings.At(i).SetName(b.Name), bindings.At(i).SetType(b.Type))
	}

	for i, f := range info.Inline {
		inline.At(i).SetOffset(f.Off)
		errs = append(errs, inline.At(i).SetName(f.Name), inline.At(i).SetType(f.Type))
	}

	return errors.Join(errs...)
}

func putTexts(alloc func(int32) (capnp.TextList, error), texts []string) error {
	list, err := alloc(int32(len(texts)))
	if err != nil {
		return err
	}
	for i, text := range texts {
		if err := list.Set(i, text); err != nil {
			return err
		}
	}
	return nil
}

func access(a client.Access) schema.BindingAccess {
	switch a {
	case client.Read:
		return schema.BindingAccess_read
	case client.Write:
		return schema.BindingAccess_write
	default:
		return schema.BindingAccess_readWrite
	}
}
