package manager_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/ledger"
	"capgpu/manager"
	"capgpu/schema"
)

// changedPolicy returns the current policy, changed.
func (w *world) changedPolicy(change func(*manager.Policy)) *manager.Policy {
	p := *w.policy
	p.Tenants = slices.Clone(p.Tenants)
	change(&p)
	return &p
}

// reload changes the policy, which takes effect as a whole.
func (w *world) reload(change func(*manager.Policy)) manager.Changes {
	w.t.Helper()
	next := w.changedPolicy(change)
	changes, err := w.Reload(within(w.t), next)
	require.NoError(w.t, err)
	require.Empty(w.t, changes.Failed)
	w.policy = next
	return changes
}

func (w *world) setLimits(tenant string, l ledger.Limits) {
	w.t.Helper()
	w.reload(func(p *manager.Policy) { p.Tenant(tenant).Limits = l })
}

// without removes a tenant from a policy.
func without(name string) func(*manager.Policy) {
	return func(p *manager.Policy) {
		p.Tenants = slices.DeleteFunc(p.Tenants, func(t manager.Tenant) bool { return t.Name == name })
	}
}

// with adds a tenant with the fields of another one.
func with(name, like string) func(*manager.Policy) {
	return func(p *manager.Policy) {
		t := *manager.DevPolicy().Tenant(like)
		t.Name = name
		p.Tenants = append(p.Tenants, t)
	}
}

// waitCapnp waits for a point of a fence that is never signalled.
func waitCapnp(t *testing.T, s schema.GpuSession) (schema.GpuFence_wait_Results_Future, capnp.ReleaseFunc) {
	created, release := schema.GpuMemorySession(s).CreateFence(within(t), nil)
	t.Cleanup(release)
	made, err := created.Struct()
	require.NoError(t, err)
	f := made.Fence()
	return f.Wait(within(t), func(p schema.GpuFence_wait_Params) error { p.SetTimeoutNanos(uint64(time.Hour)); return nil })
}

// ended waits for the end of a session, and checks that the policy ended it.
func ended(t *testing.T, s *client.Session, why string) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(patience):
		require.Fail(t, "the session goes on")
	}
	require.ErrorIs(t, s.Err(), gpuerr.Revoked)
	require.ErrorContains(t, s.Err(), "reason=policy: "+why)
}

// Tenants come and go while others work undisturbed. Everything of a removed tenant ends with
// its reason, and its charges return; a tenant that is added again is served.
func TestReloadAddsAndRemovesTenants(t *testing.T) {
	w := start(t, nil)
	victim := newCounter(t, w.open(w.dial("default")))
	require.NoError(t, victim.round(5))
	memory, connections := w.held(ledger.DeviceMemory), w.held(ledger.Connections)

	changes := w.reload(with("guest", "default"))
	require.Equal(t, []manager.TenantChange{{Tenant: "guest", Change: "added", Fields: []string{}}}, changes.Tenants)
	require.Equal(t, []string{"default", "memory-only", "limited", "guest"}, w.Tenants())
	for range 2 {
		conn := w.dial("guest")
		require.Equal(t, "guest", conn.Tenant())
		s := w.open(conn)
		weak, err := s.Restrict(within(t), client.Policy{Facet: client.FacetProgram})
		require.NoError(t, err)
		require.NoError(t, addVectors(within(t), s))
		require.NoError(t, addVectors(within(t), weak))
		gate := w.dialCapnp("guest")
		through, err := openCapnp(t, gate)
		require.NoError(t, err)
		require.NoError(t, describe(t, through))
		waits, release := waitCapnp(t, through)
		defer release()
		require.EqualValues(t, connections+2, w.held(ledger.Connections))

		would, err := w.Plan(within(t), w.changedPolicy(without("guest")))
		require.NoError(t, err)
		changes := w.reload(without("guest"))
		require.Equal(t, []manager.TenantChange{{Tenant: "guest", Change: "removed", Fields: []string{}, Sessions: 2, Connections: 2}}, changes.Tenants)
		require.Equal(t, would, changes, "what was foretold")
		ended(t, s, `the policy does not give device mock0 to tenant "guest" any more`)
		ended(t, weak, "")
		how, err := waits.Struct()
		if err == nil { // a wait that begins when its session ends is refused
			how, err := how.Outcome()
			require.NoError(t, err)
			require.Equal(t, schema.OutcomeKind_revoked, how.Kind())
		} else {
			// With the reason, unless the wait had not reached the driver.
			require.Contains(t, []gpuerr.Code{gpuerr.Revoked, gpuerr.Disconnected}, gpuerr.CodeOf(rpcguard.FromException(err)), "%v", err)
		}
		require.Error(t, describe(t, through))
		_, err = conn.Devices(within(t))
		require.Error(t, err)
		require.NoFileExists(t, w.SocketPath("guest"))
		require.NoFileExists(t, w.CapnpSocketPath("guest"))
		require.EqualValues(t, connections, w.held(ledger.Connections), "its connections are over when the reload is")
		require.NoError(t, w.Check())
		require.NoError(t, victim.round(5))

		changes = w.reload(with("guest", "limited"))
		require.Equal(t, "added", changes.Tenants[0].Change)
		limited := w.open(w.dial("guest"))
		_, err = limited.CreateBuffer(within(t), 2<<20, client.Storage)
		require.ErrorIs(t, err, gpuerr.Quota)
		w.reload(without("guest"))
		ended(t, limited, "")
		w.reload(with("guest", "default"))
	}
	w.reload(without("guest"))
	victim.check()
	epoch, _ := w.driver(1)
	require.EqualValues(t, 1, epoch)
	require.Eventually(t, func() bool { return w.held(ledger.DeviceMemory) == memory }, patience, time.Millisecond, "what they had is back")
	require.Equal(t, 10, w.log.kinds()["policy.reload"])
	require.Equal(t, 10, w.log.kinds()["policy.tenant"])
	require.Contains(t, w.log.texts(), `change=removed fields="" sessions=2 connections=2`)
}

// If a tenant loses rights, only the sessions that use them end; the other rights change for
// open sessions or for the next ones.
func TestReloadWeakensATenant(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*manager.Tenant)
		fields string
		ends   string // "": it does not
		next   error  // of a later Open
	}{
		{"facet", func(t *manager.Tenant) { t.Facet = 1 }, "facet", "the policy does not allow the facet full any more, but program", nil},
		{"programs", func(t *manager.Tenant) { t.Programs = []string{"vecadd_f32"} }, "programs", "the policy allows fewer built-in programs", nil},
		{"devices", func(t *manager.Tenant) { t.Devices = []string{"gpu9"} }, "devices", "the policy does not give device mock0", gpuerr.NoDevice},
		{"allowedUids", func(t *manager.Tenant) { t.AllowedUIDs = []uint32{65533} }, "allowedUids", fmt.Sprintf("user %d may not act as tenant", os.Getuid()), gpuerr.Denied},
		{"weight", func(t *manager.Tenant) { t.Weight = 7 }, "weight", "", nil},
		{"maxConnections", func(t *manager.Tenant) { t.MaxConnections = 1 }, "maxConnections", "", nil},
		{"socket", func(t *manager.Tenant) { t.SocketMode = 0o660 }, "socket", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t, func(cfg *manager.Config) { with("other", "default")(cfg.Policy) })
			other := newCounter(t, w.open(w.dial("other")))
			conn := w.dial("default")
			s := w.open(conn)
			require.NoError(t, addVectors(within(t), s))

			changes := w.reload(func(p *manager.Policy) { c.change(p.Tenant("default")) })
			require.Len(t, changes.Tenants, 1)
			change := changes.Tenants[0]
			require.Equal(t, []string{c.fields}, change.Fields)
			if c.ends != "" {
				require.Equal(t, 1, change.Sessions)
				ended(t, s, c.ends)
			} else {
				require.Zero(t, change.Sessions)
				require.NoError(t, addVectors(within(t), s))
			}
			switch next, err := conn.Open(within(t), 0); {
			case errors.Is(c.next, gpuerr.Denied):
				require.Equal(t, 1, change.Connections)
				require.Error(t, err)
				_, err = client.Dial(within(t), w.SocketPath("default"))
				require.ErrorIs(t, err, gpuerr.Denied)
				require.Eventually(t, func() bool { return w.held(ledger.Connections) == 1 }, patience, time.Millisecond)
			case c.next != nil:
				require.ErrorIs(t, err, c.next)
			default:
				require.Zero(t, change.Connections)
				require.NoError(t, err)
				require.NoError(t, addVectors(within(t), next))
			}
			require.NoError(t, other.round(5))
			other.check()
		})
	}
}

// A tenant's longest deadline, and the number of its connections, change for open ones, too.
func TestReloadOfNumbers(t *testing.T) {
	w := start(t, nil)
	conn := w.dial("default")
	s := w.open(conn)
	w.reload(func(p *manager.Policy) {
		p.Tenant("default").MaxDeadline, p.Tenant("default").MaxConnections = 300*time.Millisecond, 2
	})
	d, err := s.Describe(within(t))
	require.NoError(t, err)
	require.Equal(t, 300*time.Millisecond, d.MaxDeadline)
	w.dial("default")
	_, err = client.Dial(within(t), w.SocketPath("default"))
	require.ErrorIs(t, err, gpuerr.Quota)
	w.reload(func(p *manager.Policy) { p.Tenant("default").MaxConnections = 3 })
	w.dial("default")

	// The next driver has the same limits.
	_, pid := w.driver(1)
	kill(t, pid)
	w.driver(2)
	s = w.open(conn)
	d, err = s.Describe(within(t))
	require.NoError(t, err)
	require.Equal(t, 300*time.Millisecond, d.MaxDeadline)
}

// A policy that cannot take effect as a whole changes nothing.
func TestReloadIsAllOrNothing(t *testing.T) {
	w := start(t, nil)
	conn := w.dial("limited")
	s := w.open(conn)
	everything := func(p *manager.Policy) {
		with("new", "default")(p)
		without("memory-only")(p)
		p.Tenant("limited").AllowedUIDs = []uint32{65533}
		p.Tenant("default").SocketMode = 0o666
	}
	refused := func(why string, change func(*manager.Policy)) {
		t.Helper()
		changes, err := w.Reload(within(t), w.changedPolicy(change))
		require.ErrorContains(t, err, why)
		require.Empty(t, changes)
		require.Equal(t, []string{"default", "memory-only", "limited"}, w.Tenants())
		require.NoFileExists(t, w.SocketPath("new"))
		require.NoFileExists(t, w.CapnpSocketPath("new"))
		info, err := os.Stat(w.CapnpSocketPath("memory-only"))
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode().Perm())
		w.dial("memory-only")
		require.NoError(t, addVectors(within(t), s))
	}
	refused("and this host has", func(p *manager.Policy) {
		everything(p)
		p.Device.MemoryBytes = 1 << 55
	})
	refused("lower maxConnections", func(p *manager.Policy) {
		everything(p)
		for i := range 60 {
			with(fmt.Sprintf("t%d", i), "default")(p)
			p.Tenants[len(p.Tenants)-1].MaxConnections = 1 << 40
		}
	})
	w.log.setRefuse(gpuerr.New(gpuerr.Quota, "the disk is full"))
	refused("E_IO: the audit log cannot be written, so the policy stays", everything)
	w.log.setRefuse(nil)
	for kind := range w.log.kinds() { // later records of earlier work
		require.NotContains(t, kind, "policy.")
	}

	// The last step that can fail, after all others: they are undone.
	moved := w.CapnpSocketPath("default") + "x"
	require.NoError(t, os.Rename(w.CapnpSocketPath("default"), moved))
	refused("change the owner and the mode", everything)
	require.NoError(t, os.Rename(moved, w.CapnpSocketPath("default")))
	require.Equal(t, 1, w.log.kinds()["policy.refused"])
	info, err := os.Stat(w.SocketPath("default"))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	// Equal parts are no change, and parts other than tenants wait for a restart.
	changes := w.reload(func(p *manager.Policy) {
		p.Device.IOVAEntries++
		p.Audit.Launches++
		p.Sandbox.Pids++
	})
	require.Empty(t, changes.Tenants)
	require.Equal(t, []string{"device", "audit", "sandbox"}, changes.Restart)
	require.NoError(t, s.Err())
	changes = w.reload(everything)
	require.Len(t, changes.Tenants, 4)
	ended(t, s, "")
	info, err = os.Stat(w.CapnpSocketPath("default"))
	require.NoError(t, err)
	require.EqualValues(t, 0o666, info.Mode().Perm())
	w.dial("new")
}
