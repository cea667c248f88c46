package engine_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine"
	"capgpu/gpu/backend/engine/enginetest"
	"capgpu/outcome"
)

// TestKills: the engine of one group is killed at any moment, under load. Each of its jobs ends
// once, ok only with its work done, and at most one of them for each kill is a device error; no
// job of others is. CAPGPU_LONG has it killed more often.
func TestKills(t *testing.T) {
	kills := 6
	if os.Getenv("CAPGPU_LONG") != "" {
		kills = 200
	}
	m := enginetest.NewMapping(t, enginetest.Start(t, 8, nil), engine.Options{})
	e := newEnds(t)
	require.NoError(t, m.Start(e))
	defer func() { require.NoError(t, m.Close()) }()
	engines := m.Engines

	p, err := m.Builtin("copy")
	require.NoError(t, err)
	var errorsOf [4]int
	var ids sync.Mutex
	last := backend.JobID(0)
	// work is a launch that copies a pattern, which is then looked at.
	work := func(c *backend.Context, src, dst backend.Span, n int, after func()) outcome.Outcome {
		pattern := bytes.Repeat([]byte{byte(n), byte(n >> 8), byte(c.Group), 1}, len(src.Host)/4)
		copy(src.Host, pattern)
		ids.Lock()
		last++
		j := &backend.Job{ID: last, Op: backend.OpLaunch, Program: p, Spans: []backend.Span{src, dst}, Context: c}
		ids.Unlock()
		j.Grid, j.Block = p.Info().NaturalGrid([]uint64{uint64(len(src.Host)), uint64(len(dst.Host))})
		if err := m.Submit(j); err != nil {
			t.Error(err)
			return outcome.Outcome{}
		}
		after()
		how := e.of(j.ID)
		if how == outcome.Success && !bytes.Equal(pattern, dst.Host) {
			t.Errorf("group %d: job %d is ok, and its work is not done", c.Group, j.ID)
		}
		return how
	}

	var wg sync.WaitGroup
	over := make(chan struct{})
	for group := uint32(2); group <= 3; group++ {
		src, dst := m.Alloc(t, 4096), m.Alloc(t, 4096)
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				if how := work(&backend.Context{Group: group}, src, dst, n, func() {}); how != outcome.Success {
					errorsOf[group]++
				}
			}
		})
	}

	src, dst := m.Alloc(t, 4096), m.Alloc(t, 4096)
	r := rand.New(rand.NewPCG(1, 2))
	for n, killed := 0, 0; killed < kills; n++ {
		how := work(&backend.Context{Group: 1}, src, dst, n, func() {
			x := engines.Live(1)
			if n%4 != 0 || x == nil {
				return
			}
			for range r.IntN(200) {
				runtime.Gosched()
			}
			killed++
			_ = unix.Kill(x.PID(), unix.SIGKILL) // it may have died
		})
		if how != outcome.Success {
			require.Equal(t, deviceError, how)
			errorsOf[1]++
		}
	}
	require.Equal(t, outcome.Success, work(&backend.Context{Group: 1}, src, dst, 7, func() {}), "the last kill is over, or costs this job")
	close(over)
	wg.Wait()
	e.once()
	require.LessOrEqual(t, errorsOf[1], kills)
	require.Zero(t, errorsOf[2]+errorsOf[3], "jobs of others")
	t.Logf("%d kills, %d device errors", kills, errorsOf[1])
}
