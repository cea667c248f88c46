package gpu

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// boundedBackend panics at a job that is not what every job promises to a
// backend, and does nothing else.
type boundedBackend struct{ *handBackend }

func (b *boundedBackend) Submit(j *backend.Job) error {
	b.check(j)
	b.sink.Complete(backend.Completion{ID: j.ID, Outcome: outcome.Success, DeviceTime: time.Microsecond})
	return nil
}

func (b *boundedBackend) check(j *backend.Job) {
	bad := func(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
	for _, s := range j.Spans {
		if len(s.Host) == 0 || cap(s.Host) != len(s.Host) || s.IOVA == 0 {
			bad("job %d has a bad span of %d bytes at %#x", j.ID, len(s.Host), s.IOVA)
		}
	}
	switch j.Op {
	case backend.OpLaunch:
		if j.Grid.Count() == 0 || j.Block.Count() == 0 || j.Block.Count() > uint64(b.limits.MaxThreadsPerBlock) || len(j.Spans) != 1 {
			bad("job %d: grid %v block %v", j.ID, j.Grid, j.Block)
		}
	case backend.OpCopy:
		if len(j.Spans) != 2 || len(j.Spans[0].Host) != len(j.Spans[1].Host) {
			bad("job %d: a copy of unequal lengths", j.ID)
		}
	case backend.OpFill:
		if len(j.Spans) != 1 || len(j.Spans[0].Host)%4 != 0 {
			bad("job %d: a fill of a part of a word", j.ID)
		}
	}
}

// Whatever 64 bytes come, each entry is completed once, in order, nothing stays
// charged or pinned, and the device only ever gets what is in bounds.
func FuzzEntries(f *testing.F) {
	seed := func(entries ...ring.Entry) {
		var all []byte
		for _, e := range entries {
			var b [ring.EntryBytes]byte
			e.Encode(&b)
			all = append(all, b[:]...)
		}
		f.Add(all)
	}
	seed(ring.NopEntry(1), ring.FillEntry(2, 1, 0, 64, 7, 0), ring.CopyEntry(3, 1, 0, 2, 0, 4096, 9))
	seed(ring.LaunchEntry(1, 3, ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3{X: 32, Y: 1, Z: 1}, 0, 0), ring.SignalEntry(2, 4, 1), ring.WaitEntry(3, 4, 1))
	seed(ring.CopyEntry(3, 1, 8191, 1, 1<<63, 1<<63, 9), ring.FillEntry(2, 1, 1<<63, 1<<63, 7, 0), ring.Entry{Op: ring.OpReplay, Object: 1}, ring.Entry{Op: 77})

	fn, err := fake.New(fake.Options{})
	require.NoError(f, err)
	dev, err := New(Config{Backend: &boundedBackend{newHandBackend()}, DMA: fn.Grants().DMA, newRing: newTestRing})
	require.NoError(f, err)
	f.Cleanup(func() {
		require.NoError(f, dev.Close(context.Background()))
		require.NoError(f, fn.Close())
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &rig{t: t, dev: dev, fn: fn, mem: true}
		s := r.open("alice")
		named := []Handle{0, buf(t, s, 8192), buf(t, s, 4096), prog(t, s, "p"), newFence(t, s, 0)}
		// A small number stands for a handle of the session, so that many are good.
		real := func(v uint64) uint64 {
			if v < uint64(len(named)) {
				return uint64(named[v])
			}
			return v
		}
		q := r.queue(s, 16, 4096)
		n, waits := 0, false
		for ; n < 16 && len(data) >= (n+1)*ring.EntryBytes; n++ {
			raw := data[n*ring.EntryBytes:]
			var e ring.Entry
			e.Decode((*[ring.EntryBytes]byte)(raw))
			e.Object = real(e.Object)
			if e.Op == ring.OpCopy {
				e.B = real(e.B)
			}
			waits = waits || e.Op == ring.OpWait
			q.mem.add(memEntry{Entry: e, bindings: []ring.Binding{{
				Buffer: real(uint64(raw[8]) % 8), Off: binary.LittleEndian.Uint64(raw[8:]), Len: binary.LittleEndian.Uint64(raw[24:]),
			}}})
		}
		if waits { // it may wait for a point that nobody ends
			require.NoError(t, s.CancelQueue(q.h))
		}
		for i, c := range q.take(n) {
			require.Equal(t, binary.LittleEndian.Uint64(data[i*ring.EntryBytes+8:]), c.UserData)
			require.NotEqual(t, outcome.Pending, c.Outcome.Kind)
			require.True(t, c.Outcome.Valid())
			require.True(t, c.Code == gpuerr.None || c.Outcome.Kind == outcome.Failed)
		}
		require.Zero(t, s.Budget()[ledger.InFlight].Reserved)
		for _, h := range named[1:3] {
			b, err := handles.Lookup[buffer](s.handles, h)
			require.NoError(t, err)
			require.Zero(t, b.pins.n.Load())
		}
		require.NoError(t, s.Close())
		require.NoError(t, dev.Check())
	})
}
