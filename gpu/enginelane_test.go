package gpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine"
	"capgpu/gpu/backend/engine/enginetest"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// lanes is a core on engine processes.
func lanes(t *testing.T, flags ...string) (*rig, *enginetest.Engines) {
	t.Helper()
	e := enginetest.Start(t, 4, enginetest.Flags(flags...))
	b, err := engine.New(t.Context(), engine.Options{Engines: e, MemoryBytes: 1 << 30})
	require.NoError(t, err)
	return newRig(t, withBackend(b)), e
}

// The core on engine processes: launches, lists with patches and without, buffers of the device.
func TestEngines(t *testing.T) {
	for name, flags := range map[string][]string{"unified": nil, "discrete": {enginetest.Local(8 << 20)}} {
		t.Run(name, func(t *testing.T) {
			r, _ := lanes(t, flags...)
			s := r.open("alice")
			up, down, hidden := buf(t, s, 8192), buf(t, s, 2<<20), deviceBuf(t, s, 8192)
			for i := range 8192 {
				host(t, s, up)[i] = byte(i * 7)
			}
			q := r.queue(s, 16, 4096)
			p := prog(t, s, "copy")
			q.launch(p, whole(up), whole(hidden))
			requireOK(t, q.one())
			requireOK(t, q.copy(down, hidden, 8192))
			require.Equal(t, host(t, s, up), host(t, s, down)[:8192])

			var rec recorder
			rec.fill(hidden, 0, 4096, 0x01010101)
			rec.launch(p, nil, whole(hidden), whole(down))
			l := rec.record(t, s)
			for range 3 {
				clear(host(t, s, down))
				q.replay(l)
				requireOK(t, q.one())
				require.Equal(t, byte(1), host(t, s, down)[4095])
			}
			clear(host(t, s, down))
			q.replay(l, ring.BindingPatch(1, 1, 4096, 4096))
			requireOK(t, q.one())
			require.Zero(t, host(t, s, down)[0])
			require.Equal(t, byte(1), host(t, s, down)[4096])

			require.NoError(t, s.DestroyBuffer(hidden))
			again := deviceBuf(t, s, 8192)
			requireOK(t, q.copy(down, again, 8192))
			require.Equal(t, make([]byte, 8192), host(t, s, down)[:8192], "a new buffer is zero")
			require.NoError(t, r.dev.Check())
		})
	}
}

// A hang costs its tenant the engine, and others nothing; the next engine has the tenant's
// memory.
func TestEngineHang(t *testing.T) {
	r, e := lanes(t)
	guilty, other := r.open("alice"), r.open("bob")
	gb, ob := buf(t, guilty, 4096), buf(t, other, 4096)
	gq, oq := r.queue(guilty, 16, 4096), r.queue(other, 16, 4096)
	requireOK(t, oq.copy(ob, buf(t, other, 4096), 64))
	pid := e.Live(other.tenant.group).PID()

	// An endless loop stops when it is told to, with its engine alive.
	began := time.Now()
	engineOf := e.Live(guilty.tenant.group).PID()
	gq.spins(prog(t, guilty, "spin"), 20_000)
	got := gq.one()
	require.Equal(t, outcome.TimedOut, got.Outcome.Kind)
	require.Less(t, time.Since(began), 10*time.Second)
	requireOK(t, gq.filled(gb, 7))
	require.Equal(t, engineOf, e.Live(guilty.tenant.group).PID())

	// One that is stopped by a signal does not: it is killed.
	require.NoError(t, unix.Kill(engineOf, unix.SIGSTOP))
	gq.spins(prog(t, guilty, "spin"), 20_000)
	require.Equal(t, outcome.TimedOut, gq.one().Outcome.Kind)
	requireOK(t, gq.filled(gb, 8), oq.filled(ob, 9))
	require.NotEqual(t, engineOf, e.Live(guilty.tenant.group).PID())
	require.Equal(t, pid, e.Live(other.tenant.group).PID())
	require.Equal(t, byte(8), host(t, guilty, gb)[0])
	require.Equal(t, byte(9), host(t, other, ob)[0])
	require.NoError(t, r.dev.Check())
}

// spins pushes a launch that does not end, with a deadline; 0: the policy's.
func (c *client) spins(p Handle, micros uint32) {
	c.t.Helper()
	c.push(ring.LaunchEntry(0, uint64(p), ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3{}, 0, micros), nil, nil)
}

func (c *client) filled(b Handle, pattern byte) ring.Completion {
	c.t.Helper()
	c.push(ring.FillEntry(0, uint64(b), 0, 4096, 0x01010101*uint32(pattern), 0), nil, nil)
	return c.one()
}

// An engine that dies costs the job that it had, and the sessions of its tenant that had memory
// in it. Others go on.
func TestEngineDeath(t *testing.T) {
	r, e := lanes(t, enginetest.Local(8<<20))
	lost, kept, other := r.open("alice"), r.open("alice"), r.open("bob")
	lostMemory, memory := deviceBuf(t, lost, 4096), buf(t, kept, 4096)
	lq, kq, oq := r.queue(lost, 16, 4096), r.queue(kept, 16, 4096), r.queue(other, 16, 4096)
	ob := deviceBuf(t, other, 4096)
	requireOK(t, lq.filled(lostMemory, 1), kq.filled(memory, 2), oq.filled(ob, 3))

	engineOf := e.Live(kept.tenant.group)
	kq.spins(prog(t, kept, "spin"), 0)
	for n := 0; n == 0; {
		r.dev.reactor.mail.call(func() { n = r.dev.reactor.sent.n })
	}
	require.NoError(t, unix.Kill(engineOf.PID(), unix.SIGKILL))
	require.Equal(t, errorOutcome, kq.one().Outcome)
	requireOK(t, kq.filled(memory, 4), oq.filled(ob, 5))
	<-lost.node.Done()
	_, err := lost.CreateFence(0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	require.True(t, kept.node.Live())
	require.True(t, other.node.Live())
	require.NoError(t, r.dev.Check())
}
