package manager

import (
	"context"
	"log/slog"
	"os"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// policyTenant returns a tenant of one user, changed.
func policyTenant(change ...func(*Tenant)) *Tenant {
	t := defaultTenant()
	t.Name, t.AllowedUIDs = "a", []uint32{7}
	for _, f := range change {
		f(&t)
	}
	return &t
}

// servedTenant returns a tenant's server with nothing but its policy and connections.
func servedTenant(t *Tenant) *tenantServer {
	s := &tenantServer{connections: map[*connection]struct{}{}}
	s.tenant.Store(t)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// hookedLog calls appended after each session.attach.
type hookedLog struct {
	testLog
	appended func()
}

func (l *hookedLog) Append(kind, tenant, detail string) (uint64, error) {
	index, err := l.testLog.Append(kind, tenant, detail)
	if kind == "session.attach" && l.appended != nil {
		l.appended()
	}
	return index, err
}

// A change of the policy while a session is being opened counts for that session, too: it is
// refused and its socket closed, or its driver gets the change.
func TestPolicyChangesWhileASessionOpens(t *testing.T) {
	const patience = 10 * time.Second
	const condemned = "a reload has condemned it"
	for _, c := range []struct {
		name   string
		change func(*tenantServer, *driverLink)
		code   gpuerr.Code // of the Open; 0: it succeeds
		told   int64       // the weight that the driver has then
	}{
		{"nothing", func(*tenantServer, *driverLink) {}, 0, 0},
		{"another weight", func(s *tenantServer, _ *driverLink) { s.tenant.Store(policyTenant(func(t *Tenant) { t.Weight = 9 })) }, 0, 9},
		{"the tenant is gone", func(s *tenantServer, _ *driverLink) { s.removed.Store(true) }, gpuerr.Denied, 0},
		{"the user is gone", func(s *tenantServer, _ *driverLink) {
			s.tenant.Store(policyTenant(func(t *Tenant) { t.AllowedUIDs = []uint32{8} }))
		}, gpuerr.Denied, 0},
		{"the facet is weaker", func(s *tenantServer, _ *driverLink) { s.tenant.Store(policyTenant(func(t *Tenant) { t.Facet = 0 })) }, gpuerr.Busy, 0},
		{"the device is gone", func(s *tenantServer, _ *driverLink) {
			s.tenant.Store(policyTenant(func(t *Tenant) { t.Devices = []string{"other"} }))
		}, gpuerr.Denied, 0},
		{condemned, func(*tenantServer, *driverLink) {}, gpuerr.Denied, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := servedTenant(policyTenant())
			conn, err := s.join(credentials{uid: 7, gid: 7}, s.policy())
			require.NoError(t, err)
			conn.idle = newIdleWatch(time.Hour, func() {})
			defer conn.idle.stop()

			ours, theirs, err := shm.Socketpair()
			require.NoError(t, err)
			link, err := control.NewConn(ours, control.ConnOptions{})
			require.NoError(t, err)
			their, err := control.NewConn(theirs, control.ConnOptions{Descriptors: true})
			require.NoError(t, err)
			l := &driverLink{epoch: 1, sessions: newOpenSessions(), ready: make(chan control.ReadyRequest, 1)}
			var session, weight atomic.Int64
			driver := control.NewPeer(context.Background(), their, func(_ context.Context, m *control.Message) *control.Message {
				switch m.Type {
				case control.TypeAttach:
					session.Store(int64(m.FDs[0]))
					m.FDs = nil
					c.change(s, l)
				case control.TypeSetTenant:
					req, err := control.ParseSetTenantRequest(m.Body)
					if err != nil {
						return control.ErrorReply(m, err)
					}
					weight.Store(int64(req.Weight))
				}
				return control.NewReply(m, nil)
			})
			defer driver.Close()
			l.caller = control.NewPeer(context.Background(), link, l.handle)
			defer l.caller.Close()
			log := &hookedLog{}
			if c.name == condemned {
				log.appended = func() { // the session is known by then
					r := revision{before: []*Tenant{policyTenant()}}
					require.Len(t, l.sessions.markEnding(r.refuse("mock0"))["a"], 1)
					require.Empty(t, l.sessions.markEnding(r.refuse("mock0")), "once")
				}
			}
			d := &device{
				name: "mock0", cfg: &Config{Policy: DevPolicy(), PingTimeout: patience}, log: slog.New(slog.DiscardHandler),
				board: newStateBoard(),
			}
			d.logs.device = log
			d.logs.shares = newAuditShares("mock0", 1<<20, log, func(string) AuditLog { return log }, slog.New(slog.DiscardHandler))
			d.requests.turns = newTurnstile(maxAsking)
			d.board.update(func(s *snapshot) { s.state, s.link = ready, l })

			_, fd, err := d.attach(context.Background(), conn)
			got := int(session.Load())
			defer unix.Close(got)
			require.Equal(t, c.told, weight.Load())
			require.NoError(t, unix.SetNonblock(got, true))
			n, read := unix.Read(got, make([]byte, 1))
			if c.code == 0 {
				require.NoError(t, err)
				require.ErrorIs(t, read, unix.EAGAIN, "the client has its end")
				require.NoError(t, unix.Close(fd))
				return
			}
			require.Equal(t, c.code, gpuerr.CodeOf(err), "%v", err)
			require.NoError(t, read)
			require.Zero(t, n, "the client's end is closed")
			_, total := l.sessions.lost()
			require.Zero(t, total)
		})
	}
}

// A connection that was admitted under an earlier policy is checked again once it is known.
func TestPolicyChangesWhileAClientConnects(t *testing.T) {
	before := policyTenant()
	who := credentials{uid: 7, gid: 7}
	for name, c := range map[string]struct {
		change func(*tenantServer)
		ok     bool
	}{
		"nothing":            {func(*tenantServer) {}, true},
		"something else":     {func(s *tenantServer) { s.tenant.Store(policyTenant(func(t *Tenant) { t.Weight = 2 })) }, true},
		"the user is gone":   {func(s *tenantServer) { s.tenant.Store(policyTenant(func(t *Tenant) { t.AllowedUIDs = []uint32{8} })) }, false},
		"the tenant is gone": {func(s *tenantServer) { s.removed.Store(true) }, false},
	} {
		s := servedTenant(before)
		c.change(s)
		conn, err := s.join(who, before)
		require.Equal(t, c.ok, err == nil, name)
		if !c.ok {
			require.ErrorIs(t, err, gpuerr.Denied, name)
			require.Empty(t, s.all(), name)
			continue
		}
		require.Equal(t, []*connection{conn}, s.all(), name)
		s.leave(conn)
		require.Empty(t, s.all(), name)
		require.Error(t, conn.ctx.Err(), name)
	}
}

// Sockets admit as the kernel does (unix(7)): by the first that fits of owner, group and
// others.
func TestReachedBy(t *testing.T) {
	in := func(mode os.FileMode) *Tenant {
		return policyTenant(func(t *Tenant) { t.SocketMode, t.SocketUID, t.SocketGID = mode, 7, 8 })
	}
	owner, group, member, other := credentials{uid: 7, gid: 8}, credentials{uid: 1, gid: 8}, credentials{uid: 1, gid: 1, groups: []uint32{5, 8}}, credentials{uid: 1, gid: 1}
	for mode, want := range map[os.FileMode][4]bool{
		0o600: {true, false, false, false}, 0o660: {true, true, true, false}, 0o666: {true, true, true, true},
		0o060: {false, true, true, false}, 0o606: {true, false, false, true}, 0o444: {false, false, false, false},
	} {
		var got [4]bool
		for i, who := range []credentials{owner, group, member, other} {
			got[i] = in(mode).reachedBy(who)
		}
		require.Equal(t, want, got, "%o", mode)
		require.True(t, in(mode).reachedBy(credentials{}), "root")
	}
	mine := policyTenant()
	require.True(t, mine.reachedBy(credentials{uid: uint32(os.Geteuid()), gid: 12345}), "the manager's own user, if nothing is said")
	// A user that mode and owner did not admit before is not kept out.
	require.NoError(t, in(0o600).refuses(credentials{uid: 7, gid: 1}, in(0o060)))
	require.ErrorIs(t, in(0o060).refuses(credentials{uid: 7, gid: 1}, in(0o600)), gpuerr.Denied)
}

// Each field of a tenant is named in docs/policy.md, and a change of it is seen.
func TestEveryFieldOfATenantIsCompared(t *testing.T) {
	doc, err := os.ReadFile("../docs/policy.md")
	require.NoError(t, err)
	base := *policyTenant()
	v := reflect.ValueOf(&base).Elem()
	for i := range v.NumField() {
		other := *policyTenant()
		f := reflect.ValueOf(&other).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 3, 3))
		case reflect.Array:
			f.Index(0).SetUint(f.Index(0).Uint() + 1)
		case reflect.Int, reflect.Int64:
			f.SetInt(f.Int() + 1)
		default:
			f.SetUint(f.Uint() + 1)
		}
		names := fieldsOf(&base, &other)
		require.Len(t, names, 1, v.Type().Field(i).Name)
		require.Contains(t, string(doc), "`"+names[0], "docs/policy.md has no such field")
		require.Empty(t, fieldsOf(&other, &other))
	}
}
