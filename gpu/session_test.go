package gpu

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

func TestLifecycle(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	d := s.Describe()
	require.Equal(t, "mock", d.Backend)
	require.Equal(t, FacetFull, d.Facet)
	require.Contains(t, d.Programs, "vecadd_f32")
	require.Equal(t, DefaultHangBound, d.HangBound)

	b := buf(t, s, 100)
	f := newFence(t, s, 7)
	p := prog(t, s, "copy")
	require.Equal(t, []byte(make([]byte, 4096)), host(t, s, b))
	st, err := s.FenceState(f)
	require.NoError(t, err)
	require.Equal(t, FenceState{Reached: 7, Promised: 7, Outcome: outcome.Success}, st)
	require.NoError(t, r.dev.Check())

	require.NoError(t, s.DestroyBuffer(b))
	require.NoError(t, s.DestroyFence(f))
	require.NoError(t, s.CloseProgram(p))
	r.idle(s)
	for _, err := range []error{s.DestroyBuffer(b), s.DestroyFence(f), s.CloseProgram(p), s.CloseQueue(b), s.CancelQueue(0)} {
		require.ErrorIs(t, err, gpuerr.Stale)
	}

	require.NoError(t, s.Err())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closing twice is harmless")
	require.ErrorIs(t, s.Err(), gpuerr.Closed)
	require.True(t, isClosed(s.Done()))
	_, err = s.CreateFence(0)
	require.ErrorIs(t, err, gpuerr.Closed, "once closed, always closed")
	_, err = s.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Closed)
	r.reclaimed()
	require.Empty(t, r.dev.Status("").Tenants[0].Sessions)
}

func TestArgumentsAreRefused(t *testing.T) {
	ctx := context.Background()
	r := newMemRig(t, withBackend(newHandBackend()), func(c *Config, _ *fake.Options) { c.MaxBufferBytes = 1 << 20; c.MaxQueueEntries = 64 })
	s := r.open("alice")
	for name, call := range map[string]func() error{
		"zero bytes":      func() error { _, err := s.CreateBuffer(ctx, 0, 0); return err },
		"huge bytes":      func() error { _, err := s.CreateBuffer(ctx, math.MaxUint64, 0); return err },
		"half of 2^64":    func() error { _, err := s.CreateBuffer(ctx, 1<<63, 0); return err },
		"over the limit":  func() error { _, err := s.CreateBuffer(ctx, 1<<20+1, 0); return err },
		"unknown usage":   func() error { _, err := s.CreateBuffer(ctx, 1, 16); return err },
		"one entry":       func() error { _, err := s.CreateQueue(1, 64); return err },
		"not a power":     func() error { _, err := s.CreateQueue(24, 64); return err },
		"many entries":    func() error { _, err := s.CreateQueue(128, 64); return err },
		"odd arena":       func() error { _, err := s.CreateQueue(16, 65); return err },
		"huge arena":      func() error { _, err := s.CreateQueue(16, math.MaxUint32&^63); return err },
		"empty bundle":    func() error { _, _, err := s.LoadProgram(ctx, 1, 0, 0); return err },
		"huge bundle":     func() error { _, _, err := s.LoadProgram(ctx, 1, 0, backend.MaxBundleBytes+1); return err },
		"negative policy": func() error { _, err := s.Restrict(Policy{MaxDeadline: -1}); return err },
		"facet":           func() error { _, err := r.dev.OpenSession(Attach{Tenant: "x", Facet: 9}); return err },
		"tenant":          func() error { _, err := r.dev.OpenSession(Attach{}); return err },
	} {
		require.ErrorIs(t, call(), gpuerr.Invalid, name)
	}
	_, _, err := s.OpenProgram("nonesuch")
	require.ErrorIs(t, err, gpuerr.NoProgram)
	r.idle(s)
}

func TestFacetsAndPrograms(t *testing.T) {
	r := newMemRig(t)
	memory := r.open("alice", func(a *Attach) { a.Facet = FacetMemory })
	_, _, err := memory.OpenProgram("copy")
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	require.ErrorIs(t, memory.CloseProgram(1), gpuerr.Unimplemented)
	require.Empty(t, memory.Describe().Programs)

	program := r.open("alice", func(a *Attach) { a.Facet = FacetProgram; a.Programs = []string{"copy", "saxpy_f32"} })
	require.Equal(t, []string{"copy", "saxpy_f32"}, program.Describe().Programs)
	prog(t, program, "copy")
	_, _, err = program.OpenProgram("spin")
	require.ErrorIs(t, err, gpuerr.NoProgram)
	_, _, err = program.LoadProgram(context.Background(), 1, 0, 1)
	require.ErrorIs(t, err, gpuerr.Unimplemented)

	none := newMemRig(t, withBackend(loadsNone{newHandBackend()}))
	_, _, err = none.open("alice").LoadProgram(context.Background(), 1, 0, 1)
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	r.idle(memory)
}

// loadsNone is a device without a verifier.
type loadsNone struct{ backend.Backend }

func (b loadsNone) Info() backend.Info {
	info := b.Backend.Info()
	info.LoadsPrograms = false
	return info
}
