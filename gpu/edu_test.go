package gpu

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/edu"
	"capgpu/gpu/backend/edu/edutest"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// eduRig is the core on the edu device's driver, on a model of the device.
func eduRig(t *testing.T) (*rig, *edutest.Model) {
	t.Helper()
	m, err := edutest.New(edutest.Options{})
	require.NoError(t, err)
	d, err := edu.New(m.Grants())
	require.NoError(t, err)
	g := m.Grants()
	r := &rig{t: t, fn: m.Function(), mem: true}
	r.dev, err = New(Config{Backend: d, Info: g.Device, DMA: g.DMA, Audit: g.Audit, newRing: newTestRing})
	require.NoError(t, err)
	t.Cleanup(func() {
		r.close()
		require.NoError(t, m.Close())
	})
	return r, m
}

// A device that takes its time is not struck for it: 64 KiB are 64 transfers of 100 ms.
func TestEduTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := eduRig(t)
		s := r.open("alice")
		src, dst, q := buf(t, s, 64<<10), buf(t, s, 64<<10), r.queue(s, 16, 0)
		copy(host(t, s, src), bytes.Repeat([]byte("edu!"), 16<<10))
		began := time.Now()
		q.push(ring.CopyEntry(0, uint64(dst), 0, uint64(src), 0, 64<<10, 0), nil, nil)
		requireOK(t, q.one())
		require.InDelta(t, 6400, time.Since(began).Milliseconds(), 50)
		require.Equal(t, host(t, s, src), host(t, s, dst))
		require.Equal(t, 64, m.Transfers())
		require.Zero(t, s.strikes.Load())
		_, _, err := s.LoadProgram(context.Background(), src, 0, 64)
		require.ErrorIs(t, err, gpuerr.Unimplemented)
	})
}

// One that does not get on is a hang, and one that cannot be reset is lost.
func TestEduHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := eduRig(t)
		s := r.open("alice")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		m.SetTrouble(edutest.Trouble{Stuck: true})
		q.fill(b, 0, 4096, 1)
		require.Equal(t, outcome.DeviceLost, q.one().Outcome.Kind)
		<-r.dev.Lost()
		require.ErrorIs(t, r.dev.Err(), gpuerr.DeviceLost)
		require.ErrorContains(t, r.dev.Err(), "could not be reset")
		m.SetTrouble(edutest.Trouble{}) // else its memory is its own for ever
	})
}

// A client with work on a device that is unplugged hears so at once.
func TestEduUnplugged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := eduRig(t)
		s := r.open("alice")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		q.fill(b, 0, 4096, 1)
		time.Sleep(50 * time.Millisecond)
		m.Unplug()
		began := time.Now()
		require.Equal(t, lostOutcome, q.one().Outcome)
		require.LessOrEqual(t, time.Since(began), 250*time.Millisecond)
	})
}
