package gate

import (
	"context"
	"sync"

	"capnproto.org/go/capnp/v3"

	"capgpu/client"
	"capgpu/gate/encode"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/outcome"
	"capgpu/schema"
)

// fence implements GpuFence.
type fence struct {
	object
	id   uint32
	line *client.Fence

	mu sync.Mutex
	// promised is the highest value that was signalled, or queued to be, through
	// this gate.
	// +checklocks:mu
	promised uint64
}

func (s *session) CreateFence(ctx context.Context, call schema.GpuMemorySession_createFence) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	id, err := s.g.newID()
	if err != nil {
		return err
	}

	line, err := s.client.CreateFence(ctx, 0)
	if err != nil {
		return err
	}

	f := &fence{object: s.newObject("fence", line), id: id, line: line}
	f.forget = s.fences.add(id, f)
	return res.SetFence(schema.GpuFence(s.export(rpcguard.Spec{
		Name: "GpuFence", Gate: f.gate, Impl: f, Ends: "close",
		Methods: schema.GpuFence_Methods(nil, f), Shutdown: f.shutdown,
	})))
}

// fenceArgument is the fence behind a capability; nil for a null one.
func (s *session) fenceArgument(c schema.GpuFence, field string) (*fence, error) {
	if !c.IsValid() {
		return nil, nil
	}
	f, err := rpcguard.Local[*fence](capnp.Client(c), field)
	if err != nil {
		return nil, err
	}
	if f.s != s {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: a fence of another session", field)
	}
	return f, nil
}

func (f *fence) Close(ctx context.Context, _ schema.GpuFence_close) error { return f.close(ctx) }

func (f *fence) Id(_ context.Context, call schema.GpuFence_id) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetId(f.id)
	return nil
}

// lastPromised is the value for waiters. Before the first promise it is the initial
// value.
func (f *fence) lastPromised() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.promised
}

// promise claims value, which must exceed all promised values, and calls submit to
// make it true. If that fails, nothing is promised. The caller holds
// session.submitMu, which guards all promises.
func (f *fence) promise(value uint64, field string, submit func() error) error {
	if last := f.lastPromised(); value <= last {
		return gpuerr.New(gpuerr.Invalid, "%s: %d does not exceed %d, which is promised already", field, value, last)
	}
	if err := submit(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.promised = value
	return nil
}

func (f *fence) Poll(ctx context.Context, call schema.GpuFence_poll) error {
	promised := f.lastPromised()
	st, err := f.line.State(ctx)
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	end := st.Outcome
	status := end.Kind.String()
	switch {
	case promised == 0 && st.Promised == 0:
		status, end = "idle", outcome.Outcome{}
	case st.Reached < promised:
		status = outcome.Pending.String()
	}

	if st.Reached < promised {
		end = outcome.Outcome{}
	}

	res.SetValue(st.Reached)
	if err := res.SetStatus(status); err != nil {
		return err
	}

	return putOutcome(res.NewOutcome, end, nil)
}

func (f *fence) Value(ctx context.Context, call schema.GpuFence_value) error {
	promised := f.lastPromised()
	st, err := f.line.State(ctx)
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetReached(st.Reached)
	res.SetPromised(max(promised, st.Promised, st.Reached))
	return nil
}

func (f *fence) Wait(ctx context.Context, call schema.GpuFence_wait) error {
	value := max(f.lastPromised(), 1) // in order with the submissions
	rpcguard.Go(ctx, call.Call)
	end, err := f.wait(ctx, value, call.Args().TimeoutNanos())
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetOk(end.Kind == outcome.OK)
	return putOutcome(res.NewOutcome, end, nil)
}

func (f *fence) WaitValue(ctx context.Context, call schema.GpuFence_waitValue) error {
	rpcguard.Go(ctx, call.Call)
	end, err := f.wait(ctx, call.Args().Value(), call.Args().TimeoutNanos())
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetOk(end.Kind == outcome.OK)
	return putOutcome(res.NewOutcome, end, nil)
}

// wait returns a pending outcome when the time is up.
func (f *fence) wait(ctx context.Context, value, timeoutNanos uint64) (outcome.Outcome, error) {
	st, err := f.line.WaitFor(ctx, value, encode.Duration(timeoutNanos))
	if err != nil {
		return outcome.Outcome{}, err
	}
	return st.Outcome, nil
}

func (f *fence) Signal(ctx context.Context, call schema.GpuFence_signal) error {
	value := call.Args().Value()
	f.s.submitMu.Lock()
	defer f.s.submitMu.Unlock()
	return f.promise(value, "value", func() error { return f.line.Signal(ctx, value) })
}
