package gpu

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/ring"
)

// Whatever bytes a list is recorded from, and whatever patches come: what the device
// would be given is within the session's buffers and the device's limits, the recording
// stays as it is, and nothing stays pinned or charged.
func FuzzRecording(f *testing.F) {
	var rec recorder
	rec.launch(3, words(5), piece(1, 0, 64))
	rec.copy(2, 0, 1, 0, 64)
	rec.fill(2, 64, 64, 3)
	rec.launch(4, nil, whole(1), whole(1), whole(2))
	seed := func(n uint8, body []byte, patches ...ring.Patch) {
		for i := range patches {
			for _, w := range patches[i].Words() {
				body = append(body, words(uint32(w), uint32(w>>32))...)
			}
		}
		f.Add(n, uint8(len(patches)), body)
	}
	all := append(append([]byte(nil), rec.entries...), rec.args...)
	seed(4, all)
	seed(4, all, ring.InlinePatch(0, 0, words(6)), ring.BindingPatch(0, 0, 64, 128), ring.BindingPatch(1, 1, 128, 0), ring.BindingPatch(3, 2, 4, 64))
	seed(4, all, ring.BindingPatch(2, 0, 4092, 8), ring.InlinePatch(0, 3, words(6)), ring.BindingPatch(1, 0, ^uint64(0), 1))

	fn, err := fake.New(fake.Options{})
	require.NoError(f, err)
	device, err := mock.New(mock.Options{})
	require.NoError(f, err)
	dev, err := New(Config{Backend: device, DMA: fn.Grants().DMA})
	require.NoError(f, err)
	f.Cleanup(func() {
		require.NoError(f, dev.Close(context.Background()))
		require.NoError(f, fn.Close())
	})
	f.Fuzz(func(t *testing.T, entries, patches uint8, data []byte) {
		r := &rig{t: t, dev: dev, fn: fn}
		s := r.open("alice")
		defer func() {
			require.NoError(t, s.Close())
			r.idle(s)
		}()
		named := []Handle{0, buf(t, s, 4096), buf(t, s, 8192), prog(t, s, "fill_u32"), prog(t, s, "vecadd_f32")}
		n, patchBytes := int(entries%32), int(patches%8)*ring.PatchBytes
		if len(data) > 2048 || len(data) < n*ring.EntryBytes+patchBytes {
			return
		}
		recording, rest := data[:len(data)-patchBytes], data[len(data)-patchBytes:]
		recording = append([]byte(nil), recording[:len(recording)&^7]...)
		// A small number in the place of a handle stands for a handle of the session.
		for off := 16; off+8 <= len(recording); off += 8 {
			in := off % ring.EntryBytes
			isHandle := in == 16 || in == 32 && recording[off-32] == byte(ring.OpCopy) || off >= n*ring.EntryBytes && (off-n*ring.EntryBytes)%8 == 0
			if v := uint64(wordAt(recording[off:], 0)); isHandle && v < uint64(len(named)) && wordAt(recording[off:], 1) == 0 {
				copy(recording[off:], words(uint32(named[v]), uint32(named[v]>>32)))
			}
		}
		from := buf(t, s, max(uint64(len(recording)), 1))
		copy(host(t, s, from), recording)
		h, err := s.RecordList(from, 0, uint32(n), uint32(len(recording)-n*ring.EntryBytes))
		if err != nil {
			code := gpuerr.CodeOf(err)
			require.True(t, code == gpuerr.Invalid || code == gpuerr.Stale || code == gpuerr.LaunchLimit, "%v", err)
			return
		}
		l, err := handles.Lookup[list](s.handles, h)
		require.NoError(t, err)
		recorded := l.newFrame(ledger.Receipt{}).jobs
		q, j := &queue{session: s}, &job{}
		j.queue = q
		for range 2 { // the second has the frame of the first
			take := ring.Taken{Entry: ring.ReplayEntry(0, uint64(h), 0)}
			take.Count = uint16(patchBytes / ring.PatchBytes)
			for off := 0; off < len(rest); off += 8 {
				take.Args = append(take.Args, uint64(wordAt(rest[off:], 0))|uint64(wordAt(rest[off:], 1))<<32)
			}
			code := q.resolve(j, &take)
			require.Contains(t, []gpuerr.Code{gpuerr.None, gpuerr.Invalid, gpuerr.LaunchLimit}, code)
			if code == gpuerr.None {
				for i := range j.work.List {
					requireInBounds(t, s, named[1:3], &j.work.List[i], &recorded[i])
				}
			}
			j.letGo()
		}
		for i := range recorded {
			requireSameJob(t, &recorded[i], &l.jobs[i])
		}
		require.Zero(t, l.pins.n.Load())
		require.NoError(t, s.CloseList(h))
		for _, h := range named[1:3] {
			b, err := handles.Lookup[buffer](s.handles, h)
			require.NoError(t, err)
			require.Zero(t, b.pins.n.Load())
			require.Zero(t, b.lists.count())
		}
	})
}

func requireSameJob(t *testing.T, want, got *backend.Job) {
	t.Helper()
	require.Equal(t, want.Inline, got.Inline)
	require.Equal(t, want.Grid, got.Grid)
	for i := range want.Spans {
		require.Equal(t, want.Spans[i].IOVA, got.Spans[i].IOVA)
		require.Len(t, got.Spans[i].Host, len(want.Spans[i].Host))
	}
}

func requireInBounds(t *testing.T, s *Session, buffers []Handle, j, recorded *backend.Job) {
	t.Helper()
	for i, span := range j.Spans {
		found := false
		for _, h := range buffers {
			b, err := handles.Lookup[buffer](s.handles, h)
			require.NoError(t, err)
			off := span.IOVA - b.iova
			if off < b.bytes && len(span.Host) > 0 && uint64(len(span.Host)) <= b.bytes-off && &span.Host[0] == &b.host[off] {
				was := recorded.Spans[i].IOVA - b.iova
				found = was < b.bytes // the same buffer as was recorded
			}
		}
		require.True(t, found, "span %d: %d bytes at %#x", i, len(span.Host), span.IOVA)
		require.NotEmpty(t, span.Host)
		require.Equal(t, len(span.Host), cap(span.Host))
	}
	require.Len(t, j.Inline, len(recorded.Inline))
	require.Equal(t, recorded.Op, j.Op)
	require.True(t, reflect.DeepEqual(recorded.Program, j.Program) && recorded.Block == j.Block && recorded.Shared == j.Shared)
	switch j.Op {
	case backend.OpLaunch:
		require.NotZero(t, j.Grid.Count())
	case backend.OpCopy:
		require.Len(t, j.Spans[0].Host, len(j.Spans[1].Host))
		n := uint64(len(j.Spans[0].Host))
		require.False(t, overlap(j.Spans[0].IOVA, j.Spans[1].IOVA, n))
	case backend.OpFill:
		require.Zero(t, (uint64(len(j.Spans[0].Host))|j.Spans[0].IOVA)%4)
	}
}
