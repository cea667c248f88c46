package manager

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A watch ends its object once, after the idle time, and not before.
func TestIdleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Now(), time.Duration(0)
		w := newIdleWatch(time.Minute, func() { ended += time.Since(began) })
		time.Sleep(50 * time.Second)
		w.begin()
		w.begin()
		time.Sleep(time.Hour)
		w.done()
		time.Sleep(time.Hour)
		w.done()
		time.Sleep(30 * time.Second)
		w.begin() // a short activity counts
		w.done()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 50*time.Second+2*time.Hour+30*time.Second+time.Minute, ended)
		w.begin()
		w.done()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 50*time.Second+2*time.Hour+30*time.Second+time.Minute, ended, "once")

		w = newIdleWatch(time.Minute, func() { t.Error("it was stopped") })
		w.stop()
		w.begin()
		w.done()
		time.Sleep(time.Hour)
	})
}

// A session ends for its connection when its driver says so or is gone.
func TestOpenSessionsEndWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		w := newIdleWatch(time.Minute, func() { ended.Store(true) })
		by := &connection{idle: w}
		sessions := newOpenSessions()
		for session := range uint64(3) {
			sessions.ask(session+1, func() error { return nil })
			require.NoError(t, sessions.attach(session+1, openSession{tenant: "a", by: by}))
		}
		time.Sleep(time.Hour)
		sessions.observe("session.close", "tenant=a session=1 attach=1 parent=0")
		sessions.end(2)
		sessions.end(2)
		time.Sleep(time.Hour)
		require.False(t, ended.Load())
		_, total := sessions.lost()
		require.Equal(t, 1, total)
		sessions.end(3)
		time.Sleep(59 * time.Second)
		require.False(t, ended.Load())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.True(t, ended.Load())
	})
}
