package conformance_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/conformance"
	"capgpu/conformance/local"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// broken is a stack with a deliberate fault; the suite must notice it.
type broken struct {
	conformance.Stack
	session func(s conformance.Session) conformance.Session
	charges func(uses []conformance.Use) []conformance.Use
	refuses func(tenant string) error // OpenDevice; may be nil
}

func (b broken) Name() string { return "broken " + b.Stack.Name() }

func (b broken) Dial(ctx context.Context, tenant string) (conformance.Conn, error) {
	c, err := b.Stack.Dial(ctx, tenant)
	if err != nil || b.session == nil && b.refuses == nil {
		return c, err
	}
	return brokenConn{c, b, tenant}, nil
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
	b      broken
	tenant string
}

func (c brokenConn) Open(ctx context.Context, device uint32) (conformance.Session, error) {
	if c.b.refuses != nil {
		if err := c.b.refuses(c.tenant); err != nil {
			return nil, err
		}
	}
	s, err := c.Conn.Open(ctx, device)
	if err != nil || c.b.session == nil {
		return s, err
	}
	return c.b.session(s), nil
}

// optimist reports all work as ok.
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

// careless returns memory with a byte that is not zero.
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

// hasty waits for a shorter time than requested.
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

// banned refuses a tenant with hangs for a while from its first call on, and names
// an end.
func banned(real time.Duration, named func() string) func(tenant string) error {
	ban := sync.OnceValues(func() (time.Time, string) { return time.Now().Add(real), named() })
	return func(tenant string) error {
		if tenant != conformance.Alice && tenant != conformance.Dave {
			return nil
		}
		end, name := ban()
		if time.Now().After(end) {
			return nil
		}
		return gpuerr.New(gpuerr.Banned, "reason=hang until=%s: too many strikes", name)
	}
}

// after names the end of a ban as the service does, rounded up.
func after(d time.Duration) func() string {
	return func() string {
		return time.Now().Add(d + time.Second - 1).Truncate(time.Second).UTC().Format(time.RFC3339)
	}
}

func forever() string { return "forever" }

// hang is the behaviour with bans.
func hang() conformance.Behaviour { return conformance.All()[1] }

// A banned tenant waits for the named end, and continues.
func TestBansAreWaitedFor(t *testing.T) {
	stack := broken{Stack: start(t, local.Options{Transport: local.GoClient}), refuses: banned(time.Second, after(time.Second))}
	r := conformance.Check(t.Context(), stack, hang(), conformance.Short)
	require.Equal(t, conformance.Pass, r.Verdict, "%v", r)
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
		"a ban that names no end":                        {broken{refuses: banned(time.Hour, forever)}, 2, "names no end"},
		"a ban that goes on after its end":               {broken{refuses: banned(time.Hour, after(0))}, 2, "after the end that a ban has named: E_BANNED"},
		"a ban that is longer than anybody waits":        {broken{refuses: banned(time.Hour, after(time.Hour))}, 2, "longer than this behaviour may take"},
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
