package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/conformance"
	"capgpu/conformance/local"
	"capgpu/outcome"
)

// broken is a stack that tells or does something wrong, to see that the suite notices.
type broken struct {
	conformance.Stack
	session func(s conformance.Session) conformance.Session
	charges func(uses []conformance.Use) []conformance.Use
}

func (b broken) Name() string { return "broken " + b.Stack.Name() }

func (b broken) Dial(ctx context.Context, tenant string) (conformance.Conn, error) {
	c, err := b.Stack.Dial(ctx, tenant)
	if err != nil || b.session == nil {
		return c, err
	}
	return brokenConn{c, b}, nil
}

func (b broken) Charges(ctx context.Context, tenant string, device uint32) ([]conformance.Use, error) {
	uses, err := b.Stack.Charges(ctx, tenant, device)
	if b.charges != nil {
		uses = b.charges(uses)
	}
	return uses, err
}

type brokenConn struct {
	conformance.Conn
	b broken
}

func (c brokenConn) Open(ctx context.Context, device uint32) (conformance.Session, error) {
	s, err := c.Conn.Open(ctx, device)
	if err != nil {
		return nil, err
	}
	return c.b.session(s), nil
}

// optimist says ok of all work.
type optimist struct{ conformance.Session }

func (s optimist) Queue(ctx context.Context) (conformance.Queue, error) {
	q, err := s.Session.Queue(ctx)
	return rosyQueue{q}, err
}

type rosyQueue struct{ conformance.Queue }

func (q rosyQueue) Completions(ctx context.Context, max int, timeout time.Duration) ([]client.Completion, error) {
	all, err := q.Queue.Completions(ctx, max, timeout)
	for i := range all {
		all[i].Outcome = outcome.Success
	}
	return all, err
}

// careless gives memory of which a byte is not zero.
type careless struct{ conformance.Session }

func (s careless) Buffer(ctx context.Context, n uint64) (conformance.Buffer, error) {
	b, err := s.Session.Buffer(ctx, n)
	if err == nil {
		err = b.Write(ctx, n-1, []byte{0xa7})
	}
	return b, err
}

// immortal closes nothing.
type immortal struct{ conformance.Session }

func (immortal) Close(context.Context) error { return nil }

// vague refuses without a name.
type vague struct{ conformance.Session }

func (s vague) BufferOf(ctx context.Context, n uint64, usage uint32) (conformance.Buffer, error) {
	b, err := s.Session.BufferOf(ctx, n, usage)
	if err != nil {
		err = context.Canceled
	}
	return b, err
}

// hasty waits for no longer than it likes.
type hasty struct{ conformance.Session }

func (s hasty) Fence(ctx context.Context) (conformance.Fence, error) {
	f, err := s.Session.Fence(ctx)
	return hastyFence{f}, err
}

type hastyFence struct{ conformance.Fence }

func (f hastyFence) Wait(ctx context.Context, value uint64, timeout time.Duration) (outcome.Outcome, error) {
	if timeout < time.Millisecond {
		timeout = 0
	}
	return f.Fence.Wait(ctx, value, timeout)
}

// generous has every program.
type generous struct{ conformance.Session }

func (s generous) Program(ctx context.Context, name string) (conformance.Program, error) {
	if name == "no_such_program" {
		name = "vecadd_f32"
	}
	return s.Session.Program(ctx, name)
}

func TestTheSuiteNotices(t *testing.T) {
	stack := start(t, local.Options{Transport: local.Capnp})
	lies := func(uses []conformance.Use) []conformance.Use {
		for i := range uses {
			if uses[i].Class == "deviceMemory" {
				uses[i].Used += 4096
			}
		}
		return uses
	}
	for what, x := range map[string]struct {
		broken broken
		number int
		says   string
	}{
		"a transport that says ok of work that failed":   {broken{session: func(s conformance.Session) conformance.Session { return optimist{s} }}, 2, "ended ok, want failed"},
		"the same, of work that strayed":                 {broken{session: func(s conformance.Session) conformance.Session { return optimist{s} }}, 13, "ended ok, want failed"},
		"a ledger that counts a page too many":           {broken{charges: lies}, 11, "is charged with"},
		"memory that is not scrubbed":                    {broken{session: func(s conformance.Session) conformance.Session { return careless{s} }}, 12, "the next owner finds"},
		"a close that does nothing":                      {broken{session: func(s conformance.Session) conformance.Session { return immortal{s} }}, 1, ""},
		"a refusal without code or field":                {broken{session: func(s conformance.Session) conformance.Session { return vague{s} }}, 5, "context canceled"},
		"times that are cut to milliseconds":             {broken{session: func(s conformance.Session) conformance.Session { return hasty{s} }}, 7, "a wait of 990µs ended after"},
		"a name that is taken although there is no such": {broken{session: func(s conformance.Session) conformance.Session { return generous{s} }}, 14, "was accepted"},
	} {
		t.Run(what, func(t *testing.T) {
			x.broken.Stack = stack
			for _, b := range conformance.All() {
				if b.Number != x.number {
					continue
				}
				r := conformance.Check(t.Context(), x.broken, b, conformance.Short)
				require.Equal(t, conformance.Fail, r.Verdict, "%v", r)
				require.Contains(t, r.Reason, x.says)
			}
		})
	}
}

func TestResultsAreForPeople(t *testing.T) {
	r := conformance.Result{Stack: "mock", Number: 3, Name: "submit and vanish", Verdict: conformance.Fail, Reason: "because"}
	require.Equal(t, "mock 3 submit and vanish: fail: because", r.String())
	for i, b := range conformance.All() {
		require.Equal(t, i+1, b.Number)
	}
	require.Len(t, conformance.All(), 15)
}
