package manager_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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

// changedPolicy is the policy of now, changed.
func (w *world) changedPolicy(change func(*manager.Policy)) *manager.Policy {
	p := *w.policy
	p.Tenants = slices.Clone(p.Tenants)
	change(&p)
	return &p
}

// reload changes the policy, which takes effect whole.
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

// without takes a tenant out of a policy.
func without(name string) func(*manager.Policy) {
	return func(p *manager.Policy) {
		p.Tenants = slices.DeleteFunc(p.Tenants, func(t manager.Tenant) bool { return t.Name == name })
	}
}

// with adds a tenant that is like another one.
func with(name, like string) func(*manager.Policy) {
	return func(p *manager.Policy) {
		t := *manager.DevPolicy().Tenant(like)
		t.Name = name
		p.Tenants = append(p.Tenants, t)
	}
}

// waitCapnp waits for a point of a fence that nobody will signal.
func waitCapnp(t *testing.T, s schema.GpuSession) (schema.GpuFence_wait_Results_Future, capnp.ReleaseFunc) {
	created, release := schema.GpuMemorySession(s).CreateFence(within(t), nil)
	t.Cleanup(release)
	made, err := created.Struct()
	require.NoError(t, err)
	f := made.Fence()
	return f.Wait(within(t), func(p schema.GpuFence_wait_Params) error { p.SetTimeoutNanos(uint64(time.Hour)); return nil })
}

// ended waits for the end of a session, and wants it to be the policy's doing.
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

// Tenants come and go while others work, who notice nothing: what a tenant had that is gone
// ends, each with its reason, and comes back whole; and if it comes again it is served.
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
			// Told why, unless it had not got as far as the driver.
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

// Where a tenant may do less than before, what it may do no longer ends, and nothing else:
// the rest of it holds for open sessions, or for the next.
func TestReloadWeakensATenant(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*manager.Tenant)
		fields string
		ends   string // "": it does not
		next   error  // of an Open afterwards
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

// A tenant's longest deadline, and the number of its connections, change for what is open.
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

	// The next driver has the same.
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
	for kind := range w.log.kinds() { // others are of the work of before, and come behind it
		require.NotContains(t, kind, "policy.")
	}

	// The last step that can fail, after all others: what they did is undone.
	moved := w.CapnpSocketPath("default") + "x"
	require.NoError(t, os.Rename(w.CapnpSocketPath("default"), moved))
	refused("change the owner and the mode", everything)
	require.NoError(t, os.Rename(moved, w.CapnpSocketPath("default")))
	require.Equal(t, 1, w.log.kinds()["policy.refused"])
	info, err := os.Stat(w.SocketPath("default"))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	// What is as before is no change, and what is not about tenants waits for a restart.
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

// A device that is suspended, and one that is being given another driver, lose what the
// policy takes away all the same; and what is left goes on.
func TestReloadOfAStandingDevice(t *testing.T) {
	w := start(t, nil)
	a := w.admin()
	victim := newCounter(t, w.open(w.dial("default")))
	guest := func() *client.Session {
		w.reload(with("guest", "default"))
		return w.open(w.dial("guest"))
	}
	s := guest()
	require.NoError(t, addVectors(within(t), s))
	require.NoError(t, a.Suspend(within(t), "mock0"))
	w.reload(without("guest"))
	require.NoError(t, a.Resume(within(t), "mock0"))
	ended(t, s, "")
	require.NoError(t, victim.round(5))

	for range 3 {
		s := guest()
		var upgrading sync.WaitGroup
		upgrading.Go(func() {
			if _, err := a.Upgrade(within(t), "mock0"); err != nil {
				t.Errorf("upgrade: %v", err)
			}
		})
		w.reload(without("guest"))
		upgrading.Wait()
		ended(t, s, "")
		require.NoError(t, victim.round(5))
	}
	victim.check()
	require.NoError(t, w.Check())
}

// A driver that does not end sessions which the policy has taken away is ended itself.
func TestReloadOfADriverThatDoesNotObey(t *testing.T) {
	for name, why := range map[string]string{
		"no end for anybody": "did not end sessions that the policy has taken away within",
		"no word of an end":  "refused to end sessions that the policy has taken away: E_UNIMPLEMENTED: what is that",
	} {
		t.Run(name, func(t *testing.T) {
			w := lied(t, name)
			w.driver(1)
			s, err := w.dial("limited").Open(within(t), 0)
			require.NoError(t, err)
			changes, err := w.Reload(within(t), w.changedPolicy(without("limited")))
			require.NoError(t, err)
			require.Len(t, changes.Failed, 1)
			require.Contains(t, changes.Failed[0], why)
			select {
			case <-s.Done():
			case <-time.After(patience):
				require.Fail(t, "the session goes on")
			}
			require.Eventually(t, func() bool { return w.log.kinds()["driver.end"] > 0 }, patience, time.Millisecond)
			require.NoFileExists(t, w.SocketPath("limited"))
			s.Close(within(t))
		})
	}
}

// A client that comes while the policy changes is let in and served under what is in force then:
// nothing that was opened before is there afterwards.
func TestReloadWhileClientsCome(t *testing.T) {
	w := start(t, nil)
	victim := newCounter(t, w.open(w.dial("default")))
	w.reload(with("guest", "default"))
	stop := make(chan struct{})
	var coming sync.WaitGroup
	var mu sync.Mutex
	var sessions []*client.Session
	for range 4 {
		coming.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := client.Dial(within(t), w.SocketPath("guest"))
				if err != nil {
					continue
				}
				for range 3 {
					s, err := conn.Open(within(t), 0)
					if err != nil {
						break
					}
					mu.Lock()
					sessions = append(sessions, s)
					mu.Unlock()
				}
				conn.Close() // sessions outlive their connection
			}
		})
	}
	for i := range 10 {
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(sessions) > 5*i
		}, patience, time.Millisecond)
		w.reload(without("guest"))
		w.reload(with("guest", "default"))
		require.NoError(t, victim.round(2))
	}
	close(stop)
	coming.Wait()
	w.reload(without("guest"))
	for _, s := range sessions {
		select {
		case <-s.Done():
		case <-time.After(patience):
			require.Fail(t, "a session outlived its tenant")
		}
		require.Contains(t, []gpuerr.Code{gpuerr.Revoked, gpuerr.Disconnected}, gpuerr.CodeOf(s.Err()), "%v", s.Err())
	}
	victim.check()
	require.NoError(t, w.Check())
}

// visit is the main function of a client of another user: it says what becomes of it.
func visit(socket string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := func() error {
		conn, err := client.Dial(ctx, socket)
		if err != nil {
			return err
		}
		s, err := conn.OpenReady(ctx, 0)
		if err != nil {
			return err
		}
		fmt.Println("open")
		select {
		case <-s.Done():
			fmt.Println("session:", s.Err())
		case <-ctx.Done():
			return errors.New("the session goes on")
		}
		<-conn.Done()
		_, err = client.Dial(ctx, socket)
		return err
	}()
	fmt.Println("then:", err)
	return 0
}

// A user that the policy lets in no longer loses what it has, whoever else of the tenant
// goes on; by allowedUids, and by the owner, group and mode of the sockets.
func TestReloadTakesAUserAway(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be several users")
	}
	const bob, carol = 64001, 64002
	for name, change := range map[string]func(*manager.Tenant){
		"allowedUids": func(t *manager.Tenant) { t.AllowedUIDs = []uint32{0, carol} },
		"group":       func(t *manager.Tenant) { t.SocketGID = carol },
		"owner":       func(t *manager.Tenant) { t.SocketUID, t.SocketMode = carol, 0o600 },
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			require.NoError(t, os.Chmod(dir, 0o755))
			run := filepath.Join(dir, "run")
			require.NoError(t, os.Mkdir(run, 0o711))
			w := start(t, func(c *manager.Config) {
				c.RunDir = run
				d := c.Policy.Tenant("default")
				d.AllowedUIDs, d.SocketMode, d.SocketGID = []uint32{0, bob, carol}, 0o660, 64000
			})
			w.driver(1)
			visitor := executable(t, dir)
			begin := func(uid uint32) (said func() string) {
				cmd := exec.Command(visitor, "visit", w.SocketPath("default"))
				// Bob is in the group of the sockets besides his own, carol is not.
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{64000}}}
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				cmd.Stderr = os.Stderr
				require.NoError(t, cmd.Start())
				t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
				first := make([]byte, len("open\n"))
				_, err = io.ReadFull(out, first)
				require.NoError(t, err)
				require.Equal(t, "open\n", string(first))
				return func() string {
					rest, err := io.ReadAll(out)
					require.NoError(t, err)
					return string(rest)
				}
			}
			own := newCounter(t, w.open(w.dial("default"))) // root's, who can open everything
			bobs, carols := begin(bob), begin(carol)
			require.EqualValues(t, 3, w.held(ledger.Connections))

			changes := w.reload(func(p *manager.Policy) { change(p.Tenant("default")) })
			require.Equal(t, 1, changes.Tenants[0].Connections)
			require.Equal(t, 1, changes.Tenants[0].Sessions)
			said := bobs()
			require.Contains(t, said, "session: E_REVOKED: reason=policy: ")
			require.Contains(t, said, fmt.Sprint(bob))
			require.Regexp(t, `then: .*(E_DENIED|permission)`, said)
			require.NoError(t, own.round(5))
			require.Eventually(t, func() bool { return w.held(ledger.Connections) == 2 }, patience, time.Millisecond)

			w.reload(without("default"))
			require.Contains(t, carols(), "session: E_REVOKED: reason=policy: ", "she went on until then")
		})
	}
}

// executable is a copy of this program that every user can run.
func executable(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	b, err := os.ReadFile(self)
	require.NoError(t, err)
	path := filepath.Join(dir, "visitor")
	require.NoError(t, os.WriteFile(path, b, 0o755))
	return path
}

// An operator is told what a file would change, and nothing does. A file that is refused is
// refused with the same words as by a start.
func TestPlan(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.Policy.Device.Respawn = manager.DevPolicy().Device.Respawn })
	s := w.open(w.dial("limited"))
	a := w.admin()
	uid := os.Getuid()
	text := fmt.Sprintf(`{"tenants": [{"name": "default", "allowedUids": [%d], "weight": 5}, {"name": "new", "allowedUids": [%d]}]}`, uid, uid)
	answer, err := a.Plan(within(t), []byte(text+strings.Repeat(" ", 10_000)))
	require.NoError(t, err)
	require.Contains(t, string(answer), `{"tenant":"new","change":"added","fields":[],"sessions":0,"connections":0}`)
	require.Contains(t, string(answer), `{"tenant":"limited","change":"removed","fields":[],"sessions":1,"connections":1}`)
	require.Regexp(t, `"tenant":"default","change":"changed","fields":\[.*"weight".*\]`, string(answer))
	require.NoError(t, s.Err())
	require.Equal(t, []string{"default", "memory-only", "limited"}, w.Tenants())
	require.Zero(t, w.log.kinds()["policy.reload"])

	_, err = a.Plan(within(t), []byte(`{"tenants": [`))
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "line 1, column 14: the file ends")
	_, err = a.Plan(within(t), []byte(`{"device": {"memory": "1024TiB"}, "tenants": [{"name": "a", "allowedUids": "any"}]}`))
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "this host has")
	_, err = a.Plan(within(t), []byte(strings.Repeat(" ", 2<<20)))
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "longer than 1048576 bytes")
	_, err = a.Plan(within(t), []byte(text))
	require.NoError(t, err, "what was refused is not in the way")
}

// A manager that stops gives up what waits for a driver, and waits for no question.
func TestCloseDuringAReload(t *testing.T) {
	w := lied(t, "no end for anybody", func(c *manager.Config) { c.PingTimeout = patience })
	w.driver(1)
	s, err := w.dial("limited").Open(within(t), 0)
	require.NoError(t, err)
	a := w.admin()
	reloaded, asked := make(chan manager.Changes, 1), make(chan error, 1)
	next := w.changedPolicy(without("limited"))
	go func() {
		changes, err := w.Reload(context.Background(), next)
		if err != nil {
			t.Errorf("reload: %v", err)
		}
		reloaded <- changes
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(w.SocketPath("limited")); return err != nil }, patience, time.Millisecond)
	go func() {
		_, err := a.Plan(context.Background(), []byte(`{"tenants": [{"name": "a", "allowedUids": "any"}]}`))
		asked <- err
	}()
	begun := time.Now()
	w.stop()
	require.Less(t, time.Since(begun), patience, "it waits for no driver that does not answer")
	require.NotEmpty(t, (<-reloaded).Failed)
	require.Error(t, <-asked)
	_, err = w.Reload(within(t), next)
	require.ErrorIs(t, err, gpuerr.Disconnected)
	<-s.Done()
	s.Close(within(t))
}
