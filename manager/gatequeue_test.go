package manager

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/ledger"
)

// Between many requests of one tenant and one user, each other tenant and user gets its turn,
// in the order of arrival, and none is forgotten.
func TestGateQueueTakesTurns(t *testing.T) {
	storm, other, third := &tenantServer{}, &tenantServer{}, &tenantServer{}
	names := map[*tenantServer]string{storm: "storm", other: "other", third: "third"}
	var q gateQueue
	var asked []*gateRequest
	ask := func(s *tenantServer, uid uint32) *gateRequest {
		r := &gateRequest{tenant: s, uid: uid}
		q.add(r)
		asked = append(asked, r)
		return r
	}
	for range 4 {
		ask(storm, 1)
	}
	ask(storm, 2)
	ask(other, 3)
	gone := ask(other, 3)
	ask(other, 3)
	ask(third, 4)
	require.True(t, q.remove(gone))
	require.False(t, q.remove(gone))
	require.Equal(t, 8, q.waiting)
	var got []string
	for r := q.next(nil); r != nil; r = q.next(nil) {
		got = append(got, fmt.Sprint(names[r.tenant], r.uid))
		if len(got) == 3 { // later requests take their turn behind waiting ones
			ask(third, 5)
		}
	}
	require.Equal(t, []string{"storm1", "other3", "third4", "storm2", "other3", "third5", "storm1", "storm1", "storm1"}, got)
	require.Zero(t, q.waiting)
	require.Empty(t, q.tenants)

	ask(storm, 1)
	require.Nil(t, q.next(storm), "all but this one")
	ask(other, 3)
	require.Same(t, other, q.next(storm).tenant)
	require.Equal(t, 1, q.waiting)
}

// One user of several has at most three quarters of a tenant's connections, two of them never
// all together, and a refusal says what a user can do without one.
func TestSeats(t *testing.T) {
	books := ledger.New("test", ledger.NoLimits())
	for name, c := range map[string]struct {
		tenant Tenant
		most   int
	}{
		"alone":          {Tenant{AllowedUIDs: []uint32{7, 7}, MaxConnections: 8}, 8},
		"one of several": {Tenant{AllowedUIDs: []uint32{7, 8}, MaxConnections: 8}, 6},
		"any":            {Tenant{AnyUID: true, MaxConnections: 8}, 6},
		"any, of one":    {Tenant{AnyUID: true, MaxConnections: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			limits := ledger.NoLimits()
			limits[ledger.Connections] = c.tenant.MaxConnections
			account, err := books.Root().Child(name, limits)
			require.NoError(t, err)
			var s seats
			var all []func()
			for range c.most {
				leave, err := s.take(&c.tenant, account, 7)
				require.NoError(t, err)
				all = append(all, leave)
			}
			_, err = s.take(&c.tenant, account, 7)
			refusal := gpuerr.From(err)
			require.Equal(t, gpuerr.Quota, refusal.Code)
			require.Equal(t, "connections", refusal.Resource)
			require.EqualValues(t, 1, refusal.Asked)
			require.Contains(t, refusal.Msg, "ss -xp")
			if c.most < int(c.tenant.MaxConnections) {
				leave, err := s.take(&c.tenant, account, 8)
				require.NoError(t, err, "another user has room")
				all = append(all, leave)
				_, err = s.take(&c.tenant, account, 8)
				require.ErrorIs(t, err, gpuerr.Quota, "and leaves some to a third one")
			}
			for uid := range c.tenant.MaxConnections - uint64(len(all)) {
				leave, err := s.take(&c.tenant, account, 100+uint32(uid))
				require.NoError(t, err)
				all = append(all, leave)
			}
			_, err = s.take(&c.tenant, account, 9)
			require.ErrorContains(t, err, "all ")
			for _, leave := range all {
				leave()
			}
			require.Empty(t, s.held)
			require.Zero(t, s.all)
			require.NoError(t, account.Close())
		})
	}
}

// A tenant has a burst of gates and then its rate, and a user of several has three quarters
// of both. A refused client is told when to come again.
func TestGatePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenant := &Tenant{Name: "a", AnyUID: true, GateRate: 16}
		var p gatePace
		given := func(uid uint32) (n int) {
			for p.enter(tenant, uid, time.Now()) == nil {
				n++
			}
			return n
		}
		require.Equal(t, 48, given(1))
		require.Equal(t, 16, given(2))
		err := p.enter(tenant, 3, time.Now())
		require.ErrorIs(t, err, gpuerr.Busy)
		require.ErrorContains(t, err, "connect again in 63ms")
		time.Sleep(time.Second)
		require.Equal(t, 12, given(1))
		require.Equal(t, 4, given(2))
		for uid := range uint32(1000) {
			time.Sleep(time.Second)
			require.NoError(t, p.enter(tenant, uid, time.Now()))
		}
		require.Less(t, len(p.users), 4, "who has used nothing is forgotten")
		tenant.GateRate = 100
		require.Equal(t, 48, given(5), "another rate begins anew")

		alone := &Tenant{Name: "b", AllowedUIDs: []uint32{1}, GateRate: 16}
		p = gatePace{}
		tenant = alone
		require.Equal(t, 64, given(1))
	})
}

// The last ready gate is for another tenant than the one that got the gate before, and a
// client that has gone costs none.
func TestLastReadyGateIsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storm, other := &tenantServer{}, &tenantServer{}
		p := &gatePool{pausing: true, ready: []*gateProcess{{}, {}, {}}} // it starts none
		here, gone := func() bool { return false }, func() bool { return true }
		got := map[*tenantServer]int{}
		var mu sync.Mutex
		ask := func(s *tenantServer, gone func() bool) {
			go func() {
				g, err := p.take(t.Context(), s, 1, gone)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && g != nil {
					got[s]++
				}
			}()
			synctest.Wait()
		}
		for range 4 {
			ask(storm, here)
		}
		require.Equal(t, map[*tenantServer]int{storm: 2}, got, "all but the last")
		ask(other, gone)
		require.Equal(t, map[*tenantServer]int{storm: 2}, got)
		ask(other, here)
		require.Equal(t, map[*tenantServer]int{storm: 2, other: 1}, got)
		p.mu.Lock()
		p.ready = append(p.ready, &gateProcess{})
		p.stepLocked()
		p.mu.Unlock()
		synctest.Wait()
		require.Equal(t, map[*tenantServer]int{storm: 3, other: 1}, got, "it was not given the last one")
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Equal(t, 1, p.queue.waiting)
		p.refuseLocked(errStopping)
	})
}
