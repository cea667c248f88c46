package manager

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/control"
	"capgpu/internal/sandbox"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// Limits that change while a new driver gets the old ones reach it.
func TestLimitsChangeBeforeReady(t *testing.T) {
	const patience = 10 * time.Second
	var policy atomic.Pointer[Tenant]
	old, fresh := defaultTenant(), defaultTenant()
	old.Name, old.Limits[ledger.Buffers] = "a", 1
	fresh.Name, fresh.Limits[ledger.Buffers] = "a", 2
	policy.Store(&old)

	ours, theirs, err := shm.Socketpair()
	require.NoError(t, err)
	conn, err := control.NewConn(ours, control.ConnOptions{})
	require.NoError(t, err)
	their, err := control.NewConn(theirs, control.ConnOptions{})
	require.NoError(t, err)
	told := make(chan uint64, 4)
	driver := control.NewPeer(context.Background(), their, func(_ context.Context, m *control.Message) *control.Message {
		req, err := control.ParseSetTenantRequest(m.Body)
		if err != nil {
			return control.ErrorReply(m, err)
		}
		for _, l := range req.Limits {
			if ledger.Class(l.Class) == ledger.Buffers {
				told <- l.Amount
			}
		}
		policy.Store(&fresh)
		return control.NewReply(m, nil)
	})
	defer driver.Close()
	jailer, err := sandbox.New(sandbox.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, jailer.Close()) }()
	cell, err := jailer.Cell("test", sandbox.Driver, sandbox.Limits{})
	require.NoError(t, err)
	defer func() { require.NoError(t, cell.Close()) }()
	l := &driverLink{
		epoch: 1, child: &child{cell: cell, cmd: &exec.Cmd{Process: &os.Process{Pid: 1}}, exited: make(chan struct{})},
		ready: make(chan control.ReadyRequest, 1), grantsDone: make(chan struct{}), failure: newEpochFailure(),
	}
	l.caller = control.NewPeer(context.Background(), conn, l.handle)
	defer l.caller.Close()
	d := &device{
		function: &removable{},
		cfg:      &Config{Policy: DevPolicy(), ReadyTimeout: patience, PingTimeout: patience},
		log:      slog.New(slog.DiscardHandler), say: func(string, ...any) {}, board: newStateBoard(),
		tenants: func() []*Tenant { return []*Tenant{policy.Load()} },
	}
	d.logs.device, d.logs.host = &testLog{}, &testLog{}
	l.ready <- control.ReadyRequest{Epoch: 1}
	require.NoError(t, d.awaitReady(context.Background(), l))
	s, _ := d.board.get()
	require.Equal(t, ready, s.state)
	require.Len(t, told, 2, "what has not changed is told once")
	require.EqualValues(t, 1, <-told)
	require.EqualValues(t, 2, <-told)
}

func TestOpenSessions(t *testing.T) {
	by := &connection{idle: newIdleWatch(time.Hour, func() {})}
	defer by.idle.stop()
	sessions := newOpenSessions()
	recorded := 0
	attach := func(session uint64, tenant string) error {
		sessions.ask(session, func() error { recorded++; return nil })
		return sessions.attach(session, openSession{tenant: tenant, by: by})
	}
	for i := range uint64(4) {
		require.NoError(t, attach(i+1, []string{"a", "b"}[i%2]))
	}
	require.Equal(t, 4, recorded)
	sessions.observe("session.open", "tenant=a session=1 attach=1 parent=0")
	require.Equal(t, 4, recorded)
	sessions.observe("session.close", "tenant=a session=2 attach=0 parent=1 cause=\"attach=3 \"")
	sessions.observe("session.close", "tenant=a session=1 attach=1 parent=0")
	byTenant, total := sessions.lost()
	require.Equal(t, map[string]int{"a": 1, "b": 2}, byTenant)
	require.Equal(t, 3, total)
	require.ErrorIs(t, attach(5, "a"), errAttachLost, "its loss would not be counted")
	require.Equal(t, 4, recorded)
	_, total = sessions.lost()
	require.Zero(t, total)

	sessions = newOpenSessions()
	// The driver's own record never comes before the manager's; a refused session has no
	// record.
	sessions.ask(5, func() error { recorded++; return nil })
	sessions.ask(6, func() error { recorded++; return nil })
	sessions.observe("session.open", "tenant=a session=5 attach=5 parent=0")
	require.Equal(t, 5, recorded)
	require.NoError(t, sessions.attach(5, openSession{tenant: "a", by: by}))
	sessions.end(6)
	require.Equal(t, 5, recorded)
	for i := range uint64(2 * maxOpenSessions) {
		if err := attach(i+10, "a"); i < maxOpenSessions-1 { // one exists
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errTooManyOpen, "it could not be ended")
			sessions.end(i + 10)
		}
	}
	_, total = sessions.lost()
	require.Equal(t, maxOpenSessions, total, "a driver that records no end costs a bounded amount")
}
