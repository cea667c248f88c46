package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A device that is frozen rests: it looks at no ring, however often clients ring, and time
// passes. What was published meanwhile runs after Thaw.
func TestFrozenDeviceRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t)
		s := r.open("alice")
		m, q := buf(t, s, 4096), r.queue(s, 16, 64)
		q.fill(m, 0, 4, 1)
		requireOK(t, q.one())
		require.NoError(t, r.dev.Freeze(t.Context()))
		q.fill(m, 0, 4, 2)
		time.Sleep(time.Second) // never ends beside a goroutine that goes round and round
		require.Zero(t, q.left())
		r.dev.Thaw()
		requireOK(t, q.one())
		r.close()
	})
}
