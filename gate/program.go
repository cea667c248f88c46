package gate

import (
	"context"

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
}

func (s *session) exportProgram(code *client.Program) schema.GpuProgram {
	p := &program{s: s, code: code, gate: s.gate.NewChild()}
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
	rpcguard.Go(ctx, call.Call) // verification takes its time
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

// programArgument is the program behind a capability.
func (s *session) programArgument(c schema.GpuProgram, field string) (*client.Program, error) {
	p, err := rpcguard.Local[*program](capnp.Client(c), field)
	if err != nil {
		return nil, err
	}
	if p.s != s {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: a program of another session", field)
	}
	return p.code, nil
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

// close is idempotent.
func (p *program) close(ctx context.Context) error {
	err := p.code.Close(ctx)
	p.gate.Revoke(gpuerr.New(gpuerr.Closed, "the program was closed"))
	return err
}

func (p *program) Close(ctx context.Context, _ schema.GpuProgram_close) error { return p.close(ctx) }

func (p *program) Info(_ context.Context, call schema.GpuProgram_info) error {
	info := p.code.Info()
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	out, err := res.NewInfo()
	if err != nil {
		return err
	}
	out.SetInlineBytes(info.InlineBytes)
	out.SetSharedBytes(info.SharedBytes)
	if err := out.SetName(info.Name); err != nil {
		return err
	}
	if err := out.SetDigest(info.Digest[:]); err != nil {
		return err
	}
	bindings, err := out.NewBindings(int32(len(info.Bindings)))
	if err != nil {
		return err
	}
	for i, b := range info.Bindings {
		bindings.At(i).SetAccess(access(b.Access))
		if err := bindings.At(i).SetName(b.Name); err != nil {
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
