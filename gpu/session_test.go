package gpu

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
)

func limited(class ledger.Class, n uint64) ledger.Limits {
	l := ledger.NoLimits()
	l[class] = n
	return l
}

func TestLifecycle(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	d := s.Describe()
	require.Equal(t, "mock", d.Backend)
	require.Equal(t, FacetFull, d.Facet)
	require.Contains(t, d.Programs, "vecadd_f32")
	require.Equal(t, DefaultHangBound, d.HangBound)

	b := buf(t, s, 100)
	f := newFence(t, s, 7)
	p := prog(t, s, "copy")
	require.Equal(t, []byte(make([]byte, 4096)), host(t, s, b))
	st, err := s.FenceState(f)
	require.NoError(t, err)
	require.Equal(t, FenceState{Reached: 7, Promised: 7, Outcome: outcome.Success}, st)
	require.NoError(t, r.dev.Check())

	require.NoError(t, s.DestroyBuffer(b))
	require.NoError(t, s.DestroyFence(f))
	require.NoError(t, s.CloseProgram(p))
	r.idle(s)
	for _, err := range []error{s.DestroyBuffer(b), s.DestroyFence(f), s.CloseProgram(p), s.CloseQueue(b), s.CancelQueue(0)} {
		require.ErrorIs(t, err, gpuerr.Stale)
	}

	require.NoError(t, s.Err())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closing twice is harmless")
	require.ErrorIs(t, s.Err(), gpuerr.Closed)
	require.True(t, isClosed(s.Done()))
	_, err = s.CreateFence(0)
	require.ErrorIs(t, err, gpuerr.Closed, "once closed, always closed")
	_, err = s.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Closed)
	require.Empty(t, r.dev.Status("").Tenants[0].Sessions)
}

func TestStaleHandleIsNotReused(t *testing.T) {
	s := newRig(t).open("alice")
	first := newFence(t, s, 0)
	require.NoError(t, s.DestroyFence(first))
	second := newFence(t, s, 0)
	require.Equal(t, uint32(first), uint32(second), "the slot is used again")
	require.NotEqual(t, first, second)
	require.ErrorIs(t, s.SignalFence(first, 1), gpuerr.Stale)
	require.NoError(t, s.SignalFence(second, 1))
}

func TestForeignHandleSaysNothing(t *testing.T) {
	r := newRig(t)
	alice, bob := r.open("alice"), r.open("bob")
	live := buf(t, alice, 1)
	gone := buf(t, alice, 1)
	require.NoError(t, alice.DestroyBuffer(gone))
	never := Handle(math.MaxUint64)
	for _, h := range []Handle{live, gone, never, 0, live ^ 1<<40} {
		require.Equal(t, error(errStale), bob.DestroyBuffer(h), "every bad handle has the same answer")
	}
	require.Equal(t, error(errStale), alice.DestroyFence(live), "of another kind")
	require.NoError(t, alice.DestroyBuffer(live))
}

func TestHandlesRace(t *testing.T) {
	table := newTable()
	type thing struct{ h Handle }
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				x := &thing{}
				require.NoError(t, table.add(x, func(h Handle) { x.h = h }))
				got, err := lookup[thing](table, x.h)
				require.NoError(t, err)
				require.Same(t, x, got)
				var wins sync.WaitGroup
				won := make(chan struct{}, 2)
				for range 2 {
					wins.Go(func() {
						if _, err := take[thing](table, x.h); err == nil {
							won <- struct{}{}
						}
					})
				}
				wins.Wait()
				require.Len(t, won, 1)
				_, err = lookup[thing](table, x.h)
				require.Equal(t, error(errStale), err)
			}
		})
	}
	wg.Wait()
	table.mu.Lock()
	defer table.mu.Unlock()
	require.Zero(t, table.live)
}

func TestLookupAllocatesNothing(t *testing.T) {
	s := newRig(t).open("alice")
	h := newFence(t, s, 0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := lookup[fence](s.handles, h); err != nil {
			t.Fatal(err)
		}
		if _, err := lookup[buffer](s.handles, h); err == nil {
			t.Fatal("a fence is no buffer")
		}
	}))
}

// Every class refuses with its name and what was available, and charges nothing.
func TestQuota(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		class     ledger.Class
		limit     uint64
		asked     uint64
		available uint64
		use       func(*Session) error
	}{
		{ledger.Buffers, 2, 1, 0, func(s *Session) error { _, err := s.CreateBuffer(ctx, 1, 0); return err }},
		{ledger.IOVAEntries, 2, 1, 0, func(s *Session) error { _, err := s.CreateBuffer(ctx, 1, 0); return err }},
		{ledger.DeviceMemory, 10000, 4096, 10000 - 8192, func(s *Session) error { _, err := s.CreateBuffer(ctx, 4000, 0); return err }},
		{ledger.Fences, 2, 1, 0, func(s *Session) error { _, err := s.CreateFence(0); return err }},
		{ledger.Programs, 2, 1, 0, func(s *Session) error { _, _, err := s.OpenProgram("p"); return err }},
		{ledger.ProgramBytes, 2*loadedBytes(100) + 50, loadedBytes(100), 50, func(s *Session) error { _, _, err := load(s, 100, 0); return err }},
		{ledger.QueueSlots, 160, 64, 160 - 128, func(s *Session) error { _, err := s.CreateQueue(16, 64); return err }},
		{ledger.HostMemory, 10000, 4096, 10000 - 8192, func(s *Session) error { _, err := s.CreateQueue(2, 64); return err }},
		{ledger.Sessions, 2, 1, 0, func(s *Session) error { _, err := s.Restrict(Policy{Limits: ledger.NoLimits()}); return err }},
	} {
		t.Run(tc.class.String(), func(t *testing.T) {
			r := newMemRig(t, withBackend(newHandBackend()))
			s := r.open("alice", func(a *Attach) { a.Limits = limited(tc.class, tc.limit) })
			require.NoError(t, tc.use(s))
			require.NoError(t, tc.use(s))
			before := s.Budget()
			err := tc.use(s)
			require.ErrorIs(t, err, gpuerr.Quota)
			e := gpuerr.From(err)
			require.Equal(t, tc.class.String(), e.Resource)
			require.Equal(t, tc.asked, e.Asked)
			require.Equal(t, tc.available, e.Available)
			for c, entry := range s.Budget() {
				if entry.Class != ledger.AuditBytes {
					require.Equal(t, before[c].Used+before[c].Reserved, entry.Used+entry.Reserved, "a refusal charges nothing: %v", entry.Class)
				}
			}
			require.NoError(t, r.dev.Check())
			require.NoError(t, s.Close())
			require.NoError(t, s.account.Zero())
		})
	}
}

func TestPoolRefusalRollsBack(t *testing.T) {
	r := newRig(t, func(_ *Config, fo *fake.Options) { fo.LimitBytes = 1 << 20 })
	s := r.open("alice")
	_, err := s.CreateBuffer(context.Background(), 2<<20, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
	r.idle(s)
	// The pool has less than a chunk: what fits is still given.
	for range 3 {
		buf(t, s, 256<<10)
	}
	require.NoError(t, r.dev.Check())
	small := buf(t, s, 200<<10)
	require.NoError(t, s.DestroyBuffer(small))
	_, err = s.CreateBuffer(context.Background(), 300<<10, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.NoError(t, r.dev.Check())
}

func TestPoolErrorsAreTyped(t *testing.T) {
	fail := false
	r := newRig(t, func(_ *Config, fo *fake.Options) {
		fo.Hooks.Alloc = func(uint64) error {
			if fail {
				return context.DeadlineExceeded
			}
			return nil
		}
	})
	s := r.open("alice")
	fail = true
	_, err := s.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Busy)
	r.idle(s)
}

func TestUnmapFailureLosesTheDevice(t *testing.T) {
	fail := false
	r := &rig{t: t}
	fn, err := fake.New(fake.Options{Hooks: fake.Hooks{Free: func(ddf.IOVA, uint64) error {
		if fail {
			return gpuerr.New(gpuerr.IO, "the domain does not answer")
		}
		return nil
	}}})
	require.NoError(t, err)
	hand := newHandBackend()
	r.dev, err = New(Config{Backend: hand, DMA: fn.Grants().DMA})
	require.NoError(t, err)
	s := r.open("alice")
	big := buf(t, s, 2<<20)
	fail = true
	_ = s.DestroyBuffer(big)
	<-r.dev.Lost()
	require.ErrorIs(t, r.dev.Err(), gpuerr.DeviceLost)
	require.Error(t, s.account.Zero(), "memory that the device may still reach stays charged")
	_, err = s.CreateFence(0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	fail = false
	require.Error(t, r.dev.Close(context.Background()), "the books say what was not returned")
	fn.Close()
}

func TestArgumentsAreRefused(t *testing.T) {
	ctx := context.Background()
	r := newMemRig(t, withBackend(newHandBackend()), func(c *Config, _ *fake.Options) { c.MaxBufferBytes = 1 << 20; c.MaxQueueEntries = 64 })
	s := r.open("alice")
	for name, call := range map[string]func() error{
		"zero bytes":      func() error { _, err := s.CreateBuffer(ctx, 0, 0); return err },
		"huge bytes":      func() error { _, err := s.CreateBuffer(ctx, math.MaxUint64, 0); return err },
		"half of 2^64":    func() error { _, err := s.CreateBuffer(ctx, 1<<63, 0); return err },
		"over the limit":  func() error { _, err := s.CreateBuffer(ctx, 1<<20+1, 0); return err },
		"unknown usage":   func() error { _, err := s.CreateBuffer(ctx, 1, 8); return err },
		"one entry":       func() error { _, err := s.CreateQueue(1, 64); return err },
		"not a power":     func() error { _, err := s.CreateQueue(24, 64); return err },
		"many entries":    func() error { _, err := s.CreateQueue(128, 64); return err },
		"odd arena":       func() error { _, err := s.CreateQueue(16, 65); return err },
		"huge arena":      func() error { _, err := s.CreateQueue(16, math.MaxUint32&^63); return err },
		"empty bundle":    func() error { _, _, err := s.LoadProgram(ctx, 1, 0, 0); return err },
		"huge bundle":     func() error { _, _, err := s.LoadProgram(ctx, 1, 0, backend.MaxBundleBytes+1); return err },
		"negative policy": func() error { _, err := s.Restrict(Policy{MaxDeadline: -1}); return err },
		"facet":           func() error { _, err := r.dev.OpenSession(Attach{Tenant: "x", Facet: 9}); return err },
		"tenant":          func() error { _, err := r.dev.OpenSession(Attach{}); return err },
	} {
		require.ErrorIs(t, call(), gpuerr.Invalid, name)
	}
	_, _, err := s.OpenProgram("nonesuch")
	require.ErrorIs(t, err, gpuerr.NoProgram)
	r.idle(s)
}

func TestFacetsAndPrograms(t *testing.T) {
	r := newMemRig(t)
	memory := r.open("alice", func(a *Attach) { a.Facet = FacetMemory })
	_, _, err := memory.OpenProgram("copy")
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	require.ErrorIs(t, memory.CloseProgram(1), gpuerr.Unimplemented)
	require.Empty(t, memory.Describe().Programs)

	program := r.open("alice", func(a *Attach) { a.Facet = FacetProgram; a.Programs = []string{"copy", "saxpy_f32"} })
	require.Equal(t, []string{"copy", "saxpy_f32"}, program.Describe().Programs)
	prog(t, program, "copy")
	_, _, err = program.OpenProgram("spin")
	require.ErrorIs(t, err, gpuerr.NoProgram)
	_, _, err = program.LoadProgram(context.Background(), 1, 0, 1)
	require.ErrorIs(t, err, gpuerr.Unimplemented)

	none := newMemRig(t, withBackend(loadsNone{newHandBackend()}))
	_, _, err = none.open("alice").LoadProgram(context.Background(), 1, 0, 1)
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	r.idle(memory)
}

// loadsNone is a device without a verifier.
type loadsNone struct{ backend.Backend }

func (b loadsNone) Info() backend.Info {
	info := b.Backend.Info()
	info.LoadsPrograms = false
	return info
}

func TestRestrict(t *testing.T) {
	r := newMemRig(t)
	parent := r.open("alice", func(a *Attach) {
		a.MaxDeadline = time.Second
		a.Facet = FacetProgram
		a.Programs = []string{"copy", "spin"}
		a.Limits = limited(ledger.Buffers, 3)
	})
	for name, p := range map[string]Policy{
		"facet":    {Facet: FacetFull},
		"deadline": {MaxDeadline: 2 * time.Second},
		"program":  {Programs: []string{"copy", "trap"}},
	} {
		_, err := parent.Restrict(p)
		require.ErrorIs(t, err, gpuerr.Denied, name)
	}
	child, err := parent.Restrict(Policy{Facet: FacetProgram, MaxDeadline: time.Millisecond, Limits: limited(ledger.Fences, 1), Programs: []string{"copy"}})
	require.NoError(t, err)
	require.Equal(t, time.Millisecond, child.Describe().MaxDeadline)
	require.Equal(t, []string{"copy"}, child.Describe().Programs)
	grandchild, err := child.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
	require.NoError(t, err)

	// Charges count all the way up, and the parent's limit binds.
	buf(t, child, 1)
	buf(t, grandchild, 1)
	hers := buf(t, parent, 1)
	_, err = grandchild.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.EqualValues(t, 3, parent.Budget()[ledger.Buffers].Used)
	require.NoError(t, r.dev.Check())

	// A child's handles are its own.
	require.ErrorIs(t, child.DestroyBuffer(hers), gpuerr.Stale)
	newFence(t, child, 0)
	_, err = grandchild.CreateFence(0)
	require.ErrorIs(t, err, gpuerr.Quota)

	require.Len(t, r.dev.Status("alice").Tenants[0].Sessions, 3)
	require.NoError(t, child.Close())
	require.Error(t, grandchild.Err(), "ends with its parent")
	require.EqualValues(t, 1, parent.Budget()[ledger.Buffers].Used)
	other, err := parent.Restrict(Policy{Facet: FacetProgram, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	require.NoError(t, parent.Close())
	require.True(t, isClosed(other.Done()))
	require.ErrorIs(t, other.Err(), gpuerr.Closed)
	require.NoError(t, parent.account.Zero())
}

func TestLimitsChangeLive(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	keep := buf(t, s, 1)
	buf(t, s, 1)
	require.NoError(t, r.dev.SetTenantLimits("alice", limited(ledger.Buffers, 1)))
	_, err := s.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.NotNil(t, host(t, s, keep), "what is held stays")
	require.NoError(t, r.dev.SetTenantLimits("alice", limited(ledger.Buffers, 3)))
	buf(t, s, 1)
}

// A tenant has a budget before it has a session, and its first session keeps it.
func TestLimitsBeforeTheFirstSession(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.dev.SetTenantLimits("bob", limited(ledger.Buffers, 1)))
	tenants := r.dev.Status("bob").Tenants
	require.Len(t, tenants, 1)
	require.Equal(t, []BudgetStatus{{Class: "buffers", Limit: 1}}, tenants[0].Budget)
	require.Empty(t, tenants[0].Sessions)
	s := r.open("bob", func(a *Attach) { a.TenantLimits = limited(ledger.Buffers, 2) })
	buf(t, s, 1)
	buf(t, s, 1)
	_, err := s.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Quota, "the newest limits stand")
	r.close()
	require.Error(t, r.dev.SetTenantLimits("carol", ledger.NoLimits()), "the device is closed")
}

func TestTenantLimitSpansSessions(t *testing.T) {
	r := newRig(t)
	a := r.open("alice", func(a *Attach) { a.TenantLimits = limited(ledger.Buffers, 2) })
	b := r.open("alice", func(a *Attach) { a.TenantLimits = limited(ledger.Buffers, 2) })
	buf(t, a, 1)
	buf(t, b, 1)
	_, err := a.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
	buf(t, r.open("bob"), 1)
}

// Quota is exact under a race: never more, and the same again after freeing.
func TestQuotaRace(t *testing.T) {
	r := newRig(t)
	s := r.open("alice", func(a *Attach) { a.Limits = limited(ledger.DeviceMemory, 64<<10) })
	for range 3 {
		var mu sync.Mutex
		var got []Handle
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 4 {
					info, err := s.CreateBuffer(context.Background(), 4096, 0)
					if err != nil {
						require.ErrorIs(t, err, gpuerr.Quota)
						continue
					}
					mu.Lock()
					got = append(got, info.Handle)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(t, got, 16)
		require.NoError(t, r.dev.Check())
		for _, h := range got {
			require.NoError(t, s.DestroyBuffer(h))
		}
		r.idle(s)
	}
}

func TestCloseCascade(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	for range 50 {
		buf(t, s, 4096)
	}
	buf(t, s, 3<<20)
	f := newFence(t, s, 0)
	r.queue(s, 16, 1024)
	child, err := s.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	buf(t, child, 1)
	theirs := newFence(t, child, 0)
	woken := make(chan FenceState, 2)
	var wg sync.WaitGroup
	for _, x := range []struct {
		s *Session
		f Handle
	}{{s, f}, {child, theirs}} {
		wg.Go(func() {
			st, err := x.s.WaitFence(context.Background(), x.f, 5)
			if err == nil {
				woken <- st
				return
			}
			require.ErrorIs(t, err, gpuerr.Closed)
			woken <- FenceState{Outcome: revokedOutcome}
		})
	}
	require.NoError(t, s.Close())
	wg.Wait()
	for range 2 {
		require.Equal(t, outcome.Revoked, (<-woken).Outcome.Kind)
	}
	require.NoError(t, s.account.Zero())
	require.NoError(t, r.dev.Check())
	require.Zero(t, r.fn.Pool().Usage().UsedBytes)
}

func TestDeviceClose(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	buf(t, s, 1)
	r.queue(s, 16, 0)
	r.close()
	require.ErrorIs(t, s.Err(), gpuerr.Revoked, "closed by another than the caller")
	_, err := r.dev.OpenSession(Attach{Tenant: "alice"})
	require.Error(t, err)
	require.NoError(t, r.dev.Close(context.Background()))
}

func TestAudit(t *testing.T) {
	r := newMemRig(t)
	require.NoError(t, r.dev.SetTenantLimits("alice", limited(ledger.Buffers, 7)))
	s := r.open("alice", func(a *Attach) { a.ID = 41 })
	b := buf(t, s, 1)
	p := prog(t, s, "copy")
	q := r.queue(s, 16, 64)
	require.NoError(t, s.CloseQueue(q.h))
	require.NoError(t, s.CloseProgram(p))
	require.NoError(t, s.DestroyBuffer(b))
	child, err := s.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	require.NoError(t, child.Close())
	require.NoError(t, s.Close())
	r.open("alice") // ends with the device
	require.NoError(t, r.dev.Close(context.Background()))
	records, err := r.fn.Grants().Audit.Snapshot(0, 100)
	require.NoError(t, err)
	var told []string
	for _, rec := range records {
		told = append(told, rec.Kind+" "+rec.Detail)
	}
	const counts = "launches=0 ok=0 failed=0 innocent=0 cancelled=0 revoked=0 timedOut=0 deviceLost=0"
	closed := fmt.Sprintf("%q", "E_CLOSED: the session was closed; open another")
	hx := func(record string, h Handle) string { return fmt.Sprintf("%s%#x", record, uint64(h)) }
	digest := strings.Fields(told[3])[5]
	require.Equal(t, []string{
		"tenant.limits tenant=alice buffers=7",
		"session.open tenant=alice session=1 attach=41 parent=0 facet=full",
		hx("buffer.create tenant=alice session=1 buffer=", b) + " bytes=4096 usage=1",
		hx("program.open tenant=alice session=1 program=", p) + ` name="copy" ` + digest + " bytes=0",
		hx("queue.create tenant=alice session=1 queue=", q.h) + " entries=16 argBytes=64",
		hx("queue.close tenant=alice session=1 queue=", q.h),
		hx("program.close tenant=alice session=1 program=", p),
		hx("buffer.destroy tenant=alice session=1 buffer=", b) + " bytes=4096",
		"session.open tenant=alice session=2 attach=0 parent=1 facet=memory",
		"session.close tenant=alice session=2 attach=0 parent=1 " + counts + " cause=" + closed,
		"session.close tenant=alice session=1 attach=41 parent=0 " + counts + " cause=" + closed,
		"session.open tenant=alice session=3 attach=0 parent=0 facet=full",
		"session.close tenant=alice session=3 attach=0 parent=0 " + counts + ` cause="E_REVOKED: the device is being closed"`,
	}, told)
}

func TestAuditBytesRunOut(t *testing.T) {
	r := newRig(t)
	s := r.open("alice", func(a *Attach) { a.Limits = limited(ledger.AuditBytes, 400) })
	var err error
	for range 20 {
		if _, err = s.CreateBuffer(context.Background(), 1, 0); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, "auditBytes", gpuerr.From(err).Resource)
	require.NoError(t, r.dev.Check())
}

// Each restriction is one more account that a charge walks: the chain is bounded.
func TestRestrictDepth(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	for range maxRestrictions {
		next, err := s.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
		require.NoError(t, err)
		s = next
	}
	_, err := s.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
	require.ErrorIs(t, err, gpuerr.Denied)
}
