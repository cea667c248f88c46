package gate

import (
	"context"
	"sync"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/server"

	"capgpu/client"
	"capgpu/gate/encode"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// session implements the three session interfaces. The method capability decides
// which methods a client can call.
type session struct {
	g           *gate
	client      *client.Session
	description client.Description
	parent      *session // of a restricted session
	gate        *rpcguard.Gate
	line        rpcguard.Line // for the session and all objects made from it

	buffers ids[buffer]
	fences  ids[fence]

	submitMu sync.Mutex
	// queue is the default queue, made on its first use.
	// +checklocks:submitMu
	queue *client.Queue

	mu sync.Mutex
	// refs counts the capabilities of the session and of all objects made from it.
	// +checklocks:mu
	refs int
	// named are the programs that launchKernel has opened.
	// +checklocks:mu
	named map[string]*client.Program
	// handed are the programs of parent sessions that this session runs.
	// +checklocks:mu
	handed map[*program]*client.Program
}

// newSession takes ownership of opened, also when it fails.
func (g *gate) newSession(ctx context.Context, opened *client.Session, parent *session) (*session, error) {
	s := &session{
		g: g, client: opened, parent: parent,
		buffers: ids[buffer]{noun: "buffer"},
		fences:  ids[fence]{noun: "fence"},
		named:   make(map[string]*client.Program),
		handed:  make(map[*program]*client.Program),
	}

	description, err := opened.Describe(ctx)
	if err == nil {
		err = g.add(s)
	}
	if err != nil {
		_ = opened.Close(ended())
		return nil, err
	}

	s.description = description
	above := g.root
	if parent != nil {
		above = parent.gate
		parent.ref()
	}

	s.gate = above.NewChild()
	go s.runWatch()
	return s, nil
}

// ended is a context that is over. A session that is closed with it leaves the
// dismantling to the driver, which sees the socket close.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// runWatch revokes all capabilities of the session when it is over, and frees this
// process's part of it.
func (s *session) runWatch() {
	defer s.g.workers.Done()
	<-s.client.Done()
	s.gate.Revoke(s.client.Err())
	_ = s.client.Close(ended())
	s.g.remove(s)
	if s.parent != nil {
		s.parent.unref()
	}
}

// abandon ends the session without waiting for the driver to dismantle it.
func (s *session) abandon() { _ = s.client.Close(ended()) }

func (s *session) ref() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs++
}

// unref ends the session when nothing of it is referenced any more.
func (s *session) unref() {
	s.mu.Lock()
	s.refs--
	last := s.refs == 0
	s.mu.Unlock()
	if last {
		s.abandon()
	}
}

// export makes a capability that keeps the session alive and ends with it.
func (s *session) export(spec rpcguard.Spec) capnp.Client {
	s.ref()
	shutdown := spec.Shutdown
	spec.Log, spec.Line = s.g.log, &s.line
	spec.Shutdown = func() {
		if shutdown != nil {
			shutdown()
		}
		s.unref()
	}
	return rpcguard.Export(spec)
}

// capability exports the session with the methods of its facet.
func (s *session) capability() capnp.Client {
	var name string
	var methods []server.Method
	switch s.description.Facet {
	case client.FacetFull:
		name, methods = "GpuSession", schema.GpuSession_Methods(nil, s)
	case client.FacetProgram:
		name, methods = "GpuProgramSession", schema.GpuProgramSession_Methods(nil, s)
	default:
		name, methods = "GpuMemorySession", schema.GpuMemorySession_Methods(nil, s)
	}
	return s.export(rpcguard.Spec{Name: name, Gate: s.gate, Methods: methods, Impl: s, Ends: "close"})
}

func (s *session) Close(ctx context.Context, call schema.GpuMemorySession_close) error {
	rpcguard.Go(ctx, call.Call) // calls queued behind it fail at once instead of waiting
	err := s.client.Close(ctx)
	if err == nil {
		s.gate.Revoke(gpuerr.New(gpuerr.Closed, "the session was closed"))
	}
	return err
}

func (s *session) Describe(ctx context.Context, call schema.GpuMemorySession_describe) error {
	now, err := s.client.Describe(ctx) // a trap may have changed it
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	out, err := res.NewDescription()
	if err != nil {
		return err
	}
	return putDescription(out, now)
}

func (s *session) Budget(ctx context.Context, call schema.GpuMemorySession_budget) error {
	entries, err := s.client.Budget(ctx)
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return encode.Budget(res.NewEntries, entries)
}

func (s *session) Restrict(ctx context.Context, call schema.GpuMemorySession_restrict) error {
	in, err := call.Args().Policy()
	if err != nil {
		return badArgument("policy", err)
	}

	policy, err := readPolicy(in)
	if err != nil {
		return err
	}
	if policy.Facet > s.description.Facet {
		return gpuerr.New(gpuerr.Denied, "policy.facet: %v is more than this session's %v", policy.Facet, s.description.Facet)
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	opened, err := s.client.Restrict(ctx, policy)
	if err != nil {
		return err
	}

	child, err := s.g.newSession(ctx, opened, s)
	if err != nil {
		return err
	}

	return res.SetSession(schema.GpuMemorySession(child.capability()))
}

func readPolicy(in schema.SessionPolicy) (client.Policy, error) {
	p := client.Policy{Facet: client.Facet(in.Facet()), MaxDeadline: encode.Duration(in.MaxDeadlineNanos()), Check: in.Check()}
	if p.Facet > client.FacetFull {
		return p, gpuerr.New(gpuerr.Invalid, "policy.facet: %d is no facet", p.Facet)
	}

	limits, err := in.Limits()
	if err != nil {
		return p, badArgument("policy.limits", err)
	}
	if limits.Len() > maxPolicyEntries {
		return p, gpuerr.New(gpuerr.Invalid, "policy.limits: %d entries; at most %d", limits.Len(), maxPolicyEntries)
	}

	p.Limits = make(map[string]uint64, limits.Len())
	for i := range limits.Len() {
		resource, err := limits.At(i).Resource()
		if err != nil {
			return p, badArgument("policy.limits.resource", err)
		}
		if _, twice := p.Limits[resource]; twice {
			return p, gpuerr.New(gpuerr.Invalid, "policy.limits: %q is limited twice", resource)
		}
		p.Limits[resource] = limits.At(i).Amount()
	}

	programs, err := in.Programs()
	if err != nil {
		return p, badArgument("policy.programs", err)
	}
	if programs.Len() > maxPolicyEntries {
		return p, gpuerr.New(gpuerr.Invalid, "policy.programs: %d names; at most %d", programs.Len(), maxPolicyEntries)
	}

	for i := range programs.Len() {
		name, err := programs.At(i)
		if err != nil {
			return p, badArgument("policy.programs", err)
		}
		p.Programs = append(p.Programs, name)
	}

	return p, nil
}

// maxPolicyEntries bounds the lists of a policy.
const maxPolicyEntries = 64

// badArgument is the error of an argument that cannot be read at all.
func badArgument(field string, err error) error {
	return gpuerr.New(gpuerr.Invalid, "%s: malformed: %v", field, err)
}

func putDescription(out schema.Description, d client.Description) error {
	out.SetHangBoundNanos(uint64(d.HangBound))
	out.SetRevokeBoundNanos(uint64(d.RevokeBound))
	out.SetMaxDeadlineNanos(uint64(d.MaxDeadline))
	out.SetMaxBufferBytes(d.MaxBufferBytes)
	out.SetMaxThreadsPerBlock(d.MaxThreadsPerBlock)
	out.SetMaxGridDim(d.MaxGridDim)
	out.SetMaxSharedBytes(d.MaxSharedBytes)
	out.SetMaxBindings(d.MaxBindings)
	out.SetMaxInlineBytes(d.MaxInlineBytes)
	out.SetQueueEntries(d.MaxQueueEntries)
	out.SetSubgroupSize(d.SubgroupSize)
	out.SetFacet(schema.SessionFacet(d.Facet))
	out.SetChecked(d.Checked)
	out.SetGlobalMemAlignment(d.GlobalMemAlignment)
	out.SetMaxBindingBytes(d.MaxBindingBytes)
	out.SetLocalBytes(d.LocalBytes)
	out.SetComputeUnits(d.ComputeUnits)
	out.SetDeterministic(d.Deterministic)
	trap, err := out.NewTrap()
	if err != nil {
		return err
	}

	putTrap(trap, d.Poisoned.Trap)
	if err := putOutcome(out.NewPoisoned, d.Poisoned, nil); err != nil {
		return err
	}

	device, err := out.NewDevice()
	if err != nil {
		return err
	}
	if err := encode.Device(device, d.Device); err != nil {
		return err
	}

	names, err := out.NewPrograms(int32(len(d.Programs)))
	if err != nil {
		return err
	}

	for i, name := range d.Programs {
		if err := names.Set(i, name); err != nil {
			return err
		}
	}

	return nil
}
