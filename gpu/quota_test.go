package gpu

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/ring"
)

func limited(class ledger.Class, n uint64) ledger.Limits {
	l := ledger.NoLimits()
	l[class] = n
	return l
}

// smallQueueBytes is what a queue of two entries takes.
var smallQueueBytes = func() uint64 {
	own, _ := roundUp(ring.HostBytes(64) + mostTold*completionBytes)
	return 4096 + own
}()

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
		{ledger.HostMemory, 2*smallQueueBytes + 50, smallQueueBytes, 50, func(s *Session) error { _, err := s.CreateQueue(2, 64); return err }},
		{ledger.Descriptors, 2 * (queueDescriptors + newQueueDescriptors), queueDescriptors, 0, func(s *Session) error { _, err := s.CreateQueue(2, 64); return err }},
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
			r.idle(s)
		})
	}
}

func TestLimitsChangeLive(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	keep := buf(t, s, 1)
	buf(t, s, 1)
	require.NoError(t, r.dev.SetTenant("alice", TenantPolicy{Limits: limited(ledger.Buffers, 1)}))
	_, err := s.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.NotNil(t, host(t, s, keep), "what is held stays")
	require.NoError(t, r.dev.SetTenant("alice", TenantPolicy{Limits: limited(ledger.Buffers, 3)}))
	buf(t, s, 1)
}

// A tenant has a budget before it has a session, and its first session keeps it.
func TestLimitsBeforeTheFirstSession(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.dev.SetTenant("bob", TenantPolicy{Limits: limited(ledger.Buffers, 1)}))
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
	require.Error(t, r.dev.SetTenant("carol", TenantPolicy{Limits: ledger.NoLimits()}), "the device is closed")
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
