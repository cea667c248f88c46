package gpu

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// TestDestroyWhileTheSessionCloses: closing an object waits for whoever closes
// its session, and that one waits for those inside the session. So nobody may
// close an object from inside.
func TestDestroyWhileTheSessionCloses(t *testing.T) {
	r := newRig(t)
	for range 300 {
		s := r.open("a")
		b, err := s.CreateBuffer(t.Context(), 4096, 0)
		require.NoError(t, err)
		f, err := s.CreateFence(0)
		require.NoError(t, err)
		p, _, err := s.OpenProgram("spin")
		require.NoError(t, err)
		q, err := s.CreateQueue(2, 64)
		require.NoError(t, err)

		var all sync.WaitGroup
		start := make(chan struct{})
		for _, destroy := range []func() error{
			func() error { return s.DestroyBuffer(b.Handle) },
			func() error { return s.DestroyFence(f) },
			func() error { return s.CloseProgram(p) },
			func() error { return s.CloseQueue(q.Handle) },
			s.Close,
		} {
			all.Go(func() {
				<-start
				if err := destroy(); err != nil {
					assert.ErrorIs(t, err, gpuerr.Closed)
				}
			})
		}
		close(start)
		ended := make(chan struct{})
		go func() { all.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("a close waits for ever")
		}
	}
}
