package manager_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/manager"
)

// A device that is suspended, or is getting another driver, also loses what the policy takes
// away; the rest continues.
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

// A client that connects while the policy changes is served under the policy in force at that
// time: no session of the earlier policy is left afterwards.
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

// A manager that stops gives up requests that wait for a driver, and does not wait for a
// reload.
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
