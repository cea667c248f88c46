package manager_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/proctest"
	"capgpu/manager"
)

// busy opens a session with work in the device that does not end.
func (w *world) busy() *client.Session {
	t := w.t
	t.Helper()
	conn := w.dial("default")
	s := w.open(conn)
	q, err := s.CreateQueue(within(t), client.QueueOptions{})
	require.NoError(t, err)
	p, err := s.OpenProgram(within(t), "spin")
	require.NoError(t, err)
	t.Cleanup(func() { _ = q.Close(within(t)) })
	_, err = q.PushLaunch(&client.Launch{Program: p, Deadline: 10 * time.Second})
	require.NoError(t, err)
	require.NoError(t, q.Flush())
	require.Eventually(t, func() bool { // the driver has it
		text, err := conn.Status(within(t), 0)
		require.NoError(t, err)
		var st struct {
			Tenants []struct{ Sessions []struct{ InFlight uint64 } }
		}
		require.NoError(t, json.Unmarshal(text, &st))
		n := uint64(0)
		for _, s := range st.Tenants[0].Sessions {
			n += s.InFlight
		}
		return n > 0
	}, patience, time.Millisecond)
	return s
}

// Work that does not end keeps the driver from being replaced, unless the operator forces it.
// Then the session that blocks the replacement ends, and learns why; all others continue.
func TestForcedUpgrade(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.StopTimeout = 500 * time.Millisecond })
	a := w.admin()
	good := newCounter(t, w.open(w.dial("default")))
	require.NoError(t, good.round(5))
	bad := w.busy()

	_, err := a.Upgrade(within(t), "mock0")
	require.ErrorIs(t, err, gpuerr.Busy)
	require.NoError(t, bad.Err())
	u, err := a.ForceUpgrade(within(t), "mock0")
	require.NoError(t, err)
	require.EqualValues(t, 1, u.Preempted)
	require.EqualValues(t, 2, u.Generation)
	require.EqualValues(t, 1, u.Sessions)
	select {
	case <-bad.Done():
	case <-time.After(patience):
		require.Fail(t, "the session goes on")
	}
	require.ErrorIs(t, bad.Err(), gpuerr.Revoked)
	require.ErrorContains(t, bad.Err(), "reason=upgrade")
	require.NoError(t, good.round(5))
	good.check()
	require.Equal(t, 1, w.log.kinds()["driver.preempt"])
	u, err = a.ForceUpgrade(within(t), "mock0")
	require.NoError(t, err)
	require.Zero(t, u.Preempted, "nobody is in the way")
	require.NoError(t, good.round(5))
	require.NoError(t, w.Check())
}

// A successor that never comes ends no session: a session that blocked an earlier upgrade
// stays.
func TestForceEndsNobodyForAnotherReason(t *testing.T) {
	path := linkedDriver(t)
	w := start(t, func(c *manager.Config) {
		c.DriverPath, c.StopTimeout, c.ReadyTimeout = path, 300*time.Millisecond, 3*time.Second
	})
	a := w.admin()
	s := w.busy()
	_, err := a.Upgrade(within(t), "mock0")
	require.ErrorIs(t, err, gpuerr.Busy)

	deaf, err := os.ReadFile("/usr/bin/yes") // it writes nothing to its links
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, proctest.WriteProgram(path, deaf))
	_, err = a.ForceUpgrade(within(t), "mock0")
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorContains(t, err, "not ready")
	require.NoError(t, s.Err())
	require.Zero(t, w.log.kinds()["driver.preempt"])
}
