package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// count is how many lists an object is in.
func (s *listSet) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lists)
}

// kept is how many frames wait for a replay.
func (l *list) kept() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.free)
}

// recorder writes a recording as a client does.
type recorder struct {
	entries, args []byte
	n             uint32
}

func (r *recorder) add(e ring.Entry, bindings []ring.Binding, inline []byte) {
	if e.Op == ring.OpLaunch {
		e.SetArgs(uint32(len(r.args)), len(bindings), len(inline))
		r.args = ring.AppendArgs(r.args, bindings, inline)
		for len(r.args)%ring.ArgAlign != 0 {
			r.args = append(r.args, 0)
		}
	}
	var b [ring.EntryBytes]byte
	e.Encode(&b)
	r.entries = append(r.entries, b[:]...)
	r.n++
}

func (r *recorder) launch(p Handle, inline []byte, bindings ...ring.Binding) {
	r.add(ring.LaunchEntry(0, uint64(p), ring.Dim3{}, ring.Dim3{}, 0, 0), bindings, inline)
}

func (r *recorder) fill(b Handle, off, n uint64, pattern uint32) {
	r.add(ring.FillEntry(0, uint64(b), off, n, pattern, 0), nil, nil)
}

func (r *recorder) copy(dst Handle, dstOff uint64, src Handle, srcOff, n uint64) {
	r.add(ring.CopyEntry(0, uint64(dst), dstOff, uint64(src), srcOff, n, 0), nil, nil)
}

// put writes the recording into a buffer of its own.
func (r *recorder) put(t tb, s *Session) Handle {
	t.Helper()
	b := buf(t, s, uint64(len(r.entries)+len(r.args)))
	copy(host(t, s, b)[copy(host(t, s, b), r.entries):], r.args)
	return b
}

func (r *recorder) try(t tb, s *Session) (Handle, error) {
	t.Helper()
	b := r.put(t, s)
	h, err := s.RecordList(b, 0, r.n, uint32(len(r.args)))
	require.NoError(t, s.DestroyBuffer(b))
	return h, err
}

func (r *recorder) record(t tb, s *Session) Handle {
	t.Helper()
	h, err := r.try(t, s)
	require.NoError(t, err)
	return h
}

// replay pushes a replay; the queue is over a real ring.
func (c *client) replay(list Handle, patches ...ring.Patch) {
	c.t.Helper()
	c.next++
	e := ring.ReplayEntry(c.next, uint64(list), 0)
	require.NoError(c.t, c.ring.PushReplay(&e, patches))
	require.NoError(c.t, c.ring.Flush())
}

func words(v ...uint32) (b []byte) {
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func wordAt(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }

func piece(b Handle, off, n uint64) ring.Binding {
	return ring.Binding{Buffer: uint64(b), Off: off, Len: n}
}

func TestListRuns(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	q := r.queue(s, 16, 4096)
	a, b := buf(t, s, 4096), buf(t, s, 4096)
	fillProg := prog(t, s, "fill_u32")
	var rec recorder
	rec.fill(a, 0, 4096, 7)
	rec.launch(fillProg, words(9), piece(a, 0, 64))
	rec.copy(b, 64, a, 0, 128)
	l := rec.record(t, s)
	held := s.Budget()[ledger.HostMemory].Used
	for range 3 {
		q.replay(l)
		c := q.one()
		requireOK(t, c)
		require.Equal(t, []uint32{9, 9, 7}, []uint32{wordAt(host(t, s, b), 16), wordAt(host(t, s, b), 31), wordAt(host(t, s, b), 32)})
		require.Zero(t, wordAt(host(t, s, b), 0))
		clear(host(t, s, b))
	}
	require.EqualValues(t, 3, s.launches.Load(), "one launch in each")
	require.Equal(t, held, s.Budget()[ledger.HostMemory].Used, "without patches nothing is copied")
	r.idleButBuffers(s)
	require.NoError(t, s.CloseList(l))
	require.ErrorIs(t, s.CloseList(l), gpuerr.Stale)
	q.replay(l)
	require.Equal(t, gpuerr.Stale, q.one().Code)
	require.NoError(t, s.Close())
	r.idle(s)
}

func TestListPatches(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	q := r.queue(s, 64, 1<<14)
	a, b := buf(t, s, 4096), buf(t, s, 4096)
	fillProg := prog(t, s, "fill_u32")
	var rec recorder
	rec.launch(fillProg, words(5), piece(a, 0, 64))
	rec.copy(b, 0, a, 0, 64)
	rec.fill(b, 64, 64, 3)
	l := rec.record(t, s)

	q.replay(l, ring.InlinePatch(0, 0, words(6)), ring.BindingPatch(0, 0, 64, 128), ring.BindingPatch(1, 1, 128, 0),
		ring.BindingPatch(1, 0, 1024, 0), ring.BindingPatch(2, 0, 2048, 8))
	requireOK(t, q.one())
	ha, hb := host(t, s, a), host(t, s, b)
	require.Equal(t, []uint32{0, 6, 6, 0}, []uint32{wordAt(ha, 15), wordAt(ha, 16), wordAt(ha, 47), wordAt(ha, 48)}, "128 bytes at 64: the natural grid follows the binding")
	require.Equal(t, []uint32{0, 6, 6, 0}, []uint32{wordAt(hb, 0), wordAt(hb, 256), wordAt(hb, 271), wordAt(hb, 272)})
	require.Equal(t, []uint32{0, 3, 3, 0}, []uint32{wordAt(hb, 16), wordAt(hb, 512), wordAt(hb, 513), wordAt(hb, 514)})

	// Nothing of it stays.
	clear(ha)
	clear(hb)
	q.replay(l, ring.BindingPatch(2, 0, 0, 4))
	q.replay(l)
	requireOK(t, q.take(2)...)
	require.Equal(t, []uint32{5, 5, 0}, []uint32{wordAt(ha, 0), wordAt(ha, 15), wordAt(ha, 16)})
	require.Equal(t, []uint32{5, 5, 3, 3, 0}, []uint32{wordAt(hb, 0), wordAt(hb, 15), wordAt(hb, 16), wordAt(hb, 31), wordAt(hb, 32)})

	// Both ends of a copy within one buffer may move past each other.
	var slide recorder
	slide.fill(a, 0, 64, 1)
	slide.fill(a, 64, 64, 2)
	slide.copy(a, 0, a, 64, 64)
	window := slide.record(t, s)
	q.replay(window, ring.BindingPatch(2, 0, 64, 0), ring.BindingPatch(2, 1, 0, 0))
	requireOK(t, q.one())
	require.EqualValues(t, 1, wordAt(ha, 16))

	for name, patches := range map[string][]ring.Patch{
		"entry":                {ring.BindingPatch(3, 0, 0, 4)},
		"binding":              {ring.BindingPatch(0, 1, 0, 4)},
		"operand":              {ring.BindingPatch(1, 2, 0, 0)},
		"offset":               {ring.BindingPatch(0, 0, 4096, 4)},
		"length":               {ring.BindingPatch(0, 0, 4000, 128)},
		"recorded length":      {ring.BindingPatch(0, 0, 4064, 0)},
		"overflow":             {ring.BindingPatch(0, 0, 8, ^uint64(0)-8)},
		"copy of other length": {ring.BindingPatch(1, 0, 0, 32)},
		"fill of half words":   {ring.BindingPatch(2, 0, 2, 4)},
		"inline of a fill":     {ring.InlinePatch(2, 0, words(1))},
		"inline behind":        {ring.InlinePatch(0, 1, words(1))},
		"inline far behind":    {ring.InlinePatch(0, ^uint32(0), words(1))},
		"good, then bad":       {ring.InlinePatch(0, 0, words(77)), ring.BindingPatch(0, 9, 0, 0)},
	} {
		clear(ha)
		q.replay(l, patches...)
		c := q.one()
		require.Equal(t, gpuerr.Invalid, c.Code, name)
		require.Equal(t, outcome.Failed, c.Outcome.Kind, name)
		require.Zero(t, wordAt(ha, 0), "%s: nothing ran", name)
	}
	q.replay(window, ring.BindingPatch(2, 0, 32, 0))
	require.Equal(t, gpuerr.Invalid, q.one().Code, "a copy onto itself")
	q.replay(l)
	requireOK(t, q.one())
	require.EqualValues(t, 5, wordAt(ha, 0))
	require.NoError(t, s.Close())
	r.idle(s)
}

func TestRecordRefuses(t *testing.T) {
	r := newRig(t)
	s, other := r.open("alice"), r.open("bob")
	a := buf(t, s, 4096)
	upload, err := s.CreateBuffer(context.Background(), 4096, UsageUpload)
	require.NoError(t, err)
	fillProg, vecadd := prog(t, s, "fill_u32"), prog(t, s, "vecadd_f32")
	one := ring.Dim3{X: 1, Y: 1, Z: 1}
	for name, c := range map[string]struct {
		make func(*recorder)
		code gpuerr.Code
	}{
		"a nop":         {func(r *recorder) { r.add(ring.NopEntry(0), nil, nil) }, gpuerr.Invalid},
		"a signal":      {func(r *recorder) { r.add(ring.SignalEntry(0, 1, 1), nil, nil) }, gpuerr.Invalid},
		"a replay":      {func(r *recorder) { r.add(ring.ReplayEntry(0, 1, 0), nil, nil) }, gpuerr.Invalid},
		"no operation":  {func(r *recorder) { r.add(ring.Entry{Op: 99}, nil, nil) }, gpuerr.Invalid},
		"user data":     {func(r *recorder) { r.add(ring.FillEntry(1, uint64(a), 0, 4, 0, 0), nil, nil) }, gpuerr.Invalid},
		"a deadline":    {func(r *recorder) { r.add(ring.FillEntry(0, uint64(a), 0, 4, 0, 9), nil, nil) }, gpuerr.Invalid},
		"out of bounds": {func(r *recorder) { r.fill(a, 4096, 4, 0) }, gpuerr.Invalid},
		"overlap":       {func(r *recorder) { r.copy(a, 0, a, 2, 4) }, gpuerr.Invalid},
		"stale":         {func(r *recorder) { r.fill(a+1<<32, 0, 4, 0) }, gpuerr.Stale},
		"another's":     {func(r *recorder) { r.fill(buf(t, other, 4096), 0, 4, 0) }, gpuerr.Stale},
		"no program":    {func(r *recorder) { r.launch(a, words(1), whole(a)) }, gpuerr.Stale},
		"usage":         {func(r *recorder) { r.launch(fillProg, words(1), whole(upload.Handle)) }, gpuerr.Invalid},
		"bindings":      {func(r *recorder) { r.launch(vecadd, nil, whole(a), whole(a)) }, gpuerr.Invalid},
		"inline":        {func(r *recorder) { r.launch(fillProg, nil, whole(a)) }, gpuerr.Invalid},
		"handle 0":      {func(r *recorder) { r.launch(fillProg, words(1), ring.Binding{}) }, gpuerr.Invalid},
		"overflow":      {func(r *recorder) { r.launch(fillProg, words(1), piece(a, 8, ^uint64(0)-8)) }, gpuerr.Invalid},
		"too many threads": {func(r *recorder) {
			r.add(ring.LaunchEntry(0, uint64(fillProg), one, ring.Dim3{X: 2048, Y: 1, Z: 1}, 0, 0), []ring.Binding{whole(a)}, words(1))
		}, gpuerr.LaunchLimit},
		"shared arguments": {func(r *recorder) {
			r.launch(fillProg, words(1), whole(a))
			r.entries = append(r.entries, r.entries[64:]...)
			r.n++
		}, gpuerr.Invalid},
		"arguments beyond": {func(r *recorder) {
			r.launch(fillProg, words(1), whole(a))
			r.args = r.args[:32]
		}, gpuerr.Invalid},
	} {
		var rec recorder
		rec.fill(a, 0, 4, 1)
		c.make(&rec)
		_, err := rec.try(t, s)
		require.Equal(t, c.code, gpuerr.CodeOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "entry ", name)
		require.NotContains(t, err.Error(), "entry 0:", name)
	}
	var rec recorder
	rec.fill(a, 0, 4, 1)
	b := rec.put(t, s)
	for _, bad := range []struct {
		from              Handle
		off               uint64
		entries, argBytes uint32
	}{
		{b, 0, 0, 0}, {b, 0, MaxListEntries + 1, 0}, {b, 0, 1, MaxListArgBytes + 8}, {b, 0, 1, 4}, {b, 0, 1, 1 << 31},
		{b, 4096, 1, 0}, {b, 4096 - 63, 1, 0}, {b, ^uint64(0), 1, 0}, {b, 0, MaxListEntries, 0},
	} {
		_, err := s.RecordList(bad.from, bad.off, bad.entries, bad.argBytes)
		require.ErrorIs(t, err, gpuerr.Invalid, "%+v", bad)
	}
	_, err = s.RecordList(b+1<<32, 0, 1, 0)
	require.ErrorIs(t, err, gpuerr.Stale)
	b2, err := handles.Lookup[buffer](s.handles, a)
	require.NoError(t, err)
	require.Zero(t, b2.lists.count(), "what was refused left nothing")
	require.Zero(t, b2.pins.n.Load())
	require.NoError(t, s.Close())
	require.NoError(t, other.Close())
	r.idle(s)
}

// A device without lists says so, and a replay of nothing is stale there as well.
func TestNoLists(t *testing.T) {
	r := newRig(t, withBackend(newHandBackend()))
	s := r.open("alice")
	a := buf(t, s, 4096)
	_, err := s.RecordList(a, 0, 1, 0)
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	q := r.queue(s, 16, 4096)
	q.replay(a)
	require.Equal(t, gpuerr.Stale, q.one().Code)
}

// A list is charged before it is, and so is the copy that patches need.
func TestListQuota(t *testing.T) {
	r := newRig(t)
	var rec recorder
	s := r.open("alice")
	q := r.queue(s, 16, 4096)
	a := buf(t, s, 4096)
	for range 100 {
		rec.fill(a, 0, 4, 1)
	}
	used := s.Budget()[ledger.HostMemory].Used
	s.account.SetLimit(ledger.HostMemory, used+listBytes(100, 0)*3/2)
	l := rec.record(t, s)
	_, err := rec.try(t, s)
	require.ErrorIs(t, err, gpuerr.Quota)
	q.replay(l)
	requireOK(t, q.one())
	q.replay(l, ring.BindingPatch(0, 0, 8, 0))
	c := q.one()
	require.Equal(t, gpuerr.Quota, c.Code)
	require.EqualValues(t, listBytes(100, 0)/2, c.Available)
	s.account.SetLimit(ledger.HostMemory, used+listBytes(100, 0)*2)
	for range 3 { // the copy is used again
		q.replay(l, ring.BindingPatch(0, 0, 8, 0))
		requireOK(t, q.one())
	}
	require.NoError(t, s.CloseList(l))
	require.Equal(t, used, s.Budget()[ledger.HostMemory].Used)
}

// A list holds nothing of what is in it, and is stale once any of that is closed.
func TestListDiesWithParts(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	q := r.queue(s, 16, 4096)
	for _, closes := range []func(a, b, p Handle) error{
		func(a, _, _ Handle) error { return s.DestroyBuffer(a) },
		func(_, b, _ Handle) error { return s.DestroyBuffer(b) },
		func(_, _, p Handle) error { return s.CloseProgram(p) },
	} {
		a, b, p := buf(t, s, 4096), buf(t, s, 4096), prog(t, s, "fill_u32")
		var rec recorder
		rec.launch(p, words(1), whole(a))
		rec.copy(b, 0, a, 0, 64)
		l := rec.record(t, s)
		q.replay(l)
		requireOK(t, q.one())
		q.replay(l, ring.InlinePatch(0, 0, words(2)))
		requireOK(t, q.one())
		held, err := handles.Lookup[list](s.handles, l)
		require.NoError(t, err)
		used := s.Budget()[ledger.HostMemory].Used
		require.NoError(t, closes(a, b, p))
		require.True(t, held.jobs == nil, "it keeps nothing that nobody pays for")
		require.Nil(t, held.in)
		require.Zero(t, held.kept())
		require.LessOrEqual(t, s.Budget()[ledger.HostMemory].Used, used-held.charge.Amount(), "of the frame")
		q.replay(l)
		q.replay(l, ring.InlinePatch(0, 0, words(2)))
		for _, c := range q.take(2) {
			require.Equal(t, gpuerr.Stale, c.Code)
		}
		require.NoError(t, s.CloseList(l))
	}
	r.idleButBuffers(s)
}

// A trap ends the list where it is, poisons the session, and says where it was.
func TestListTrap(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	q := r.queue(s, 16, 4096)
	a := buf(t, s, 4096)
	var rec recorder
	rec.fill(a, 0, 64, 1)
	rec.launch(prog(t, s, "trap"), nil, piece(a, 64, 128))
	rec.fill(a, 0, 64, 2)
	l := rec.record(t, s)
	q.replay(l)
	c := q.one()
	require.Equal(t, outcome.TrapCause, c.Outcome.Cause)
	require.Equal(t, outcome.OutOfBounds, c.Outcome.Trap.Kind)
	require.EqualValues(t, 128, c.Outcome.Trap.Offset)
	require.EqualValues(t, 1, wordAt(host(t, s, a), 0), "nothing after it ran")
	require.EqualValues(t, 1, s.launches.Load())
	q.replay(l)
	require.Equal(t, poisonedOutcome, q.one().Outcome)
	b := buf0(t, s)
	_, err := s.RecordList(b, 0, 1, 0)
	require.ErrorIs(t, err, gpuerr.Poisoned)
}

// buf0 is any handle: the session is poisoned and makes no more.
func buf0(t *testing.T, s *Session) Handle {
	t.Helper()
	var h Handle
	handles.Each(s.handles, func(b *buffer) { h = b.h })
	return h
}

// The deadline is that of the whole list, and a cancel stops it.
func TestListStops(t *testing.T) {
	r := newRig(t, manyStrikes)
	s := r.open("alice")
	q := r.queue(s, 16, 4096)
	a := buf(t, s, 4096)
	var rec recorder
	rec.fill(a, 0, 64, 1)
	rec.launch(prog(t, s, "spin"), nil)
	rec.fill(a, 0, 64, 2)
	l := rec.record(t, s)
	e := ring.ReplayEntry(1, uint64(l), 20_000)
	require.NoError(t, q.ring.PushReplay(&e, nil))
	require.NoError(t, q.ring.Flush())
	require.Equal(t, hangOutcome, q.one().Outcome)
	require.EqualValues(t, 1, wordAt(host(t, s, a), 0))
	q.replay(l)
	require.NoError(t, s.CancelQueue(q.h))
	require.Equal(t, outcome.Cancelled, q.one().Outcome.Kind)
	require.EqualValues(t, 1, wordAt(host(t, s, a), 0))
	q.replay(l)
	obj, err := handles.Lookup[list](s.handles, l)
	require.NoError(t, err)
	for obj.pins.n.Load() == 0 { // it was not begun yet
		runtime.Gosched()
	}
	require.NoError(t, s.CloseList(l))
	require.Equal(t, revokedOutcome, q.one().Outcome)
}

// A fault of the device ends a list as it does any job.
func TestListFaults(t *testing.T) {
	for kind, want := range map[mock.FaultKind]outcome.Outcome{
		mock.FaultErrorCompletion:     errorOutcome,
		mock.FaultDuplicateCompletion: outcome.Success,
		mock.FaultStrayDMA:            errorOutcome,
		mock.FaultWrongWritePointer:   outcome.Success,
	} {
		r := newRig(t, withScript(mock.Fault{Kind: kind, Op: "list", Times: 1}))
		s := r.open("alice")
		q := r.queue(s, 16, 4096)
		a := buf(t, s, 4096)
		var rec recorder
		rec.fill(a, 0, 64, 1)
		l := rec.record(t, s)
		q.replay(l)
		require.Equal(t, want, q.one().Outcome, kind)
		q.replay(l, ring.BindingPatch(0, 0, 64, 0))
		requireOK(t, q.one())
		r.close()
	}
	r := newRig(t, withScript(mock.Fault{Kind: mock.FaultDeviceGone, Op: "list"}))
	s := r.open("alice")
	q := r.queue(s, 16, 4096)
	var rec recorder
	rec.fill(buf(t, s, 4096), 0, 64, 1)
	q.replay(rec.record(t, s), ring.BindingPatch(0, 0, 64, 0))
	require.Equal(t, outcome.DeviceLost, q.one().Outcome.Kind)
	r.close()
	require.True(t, errors.Is(s.Err(), gpuerr.DeviceLost))
}

// The device's word about how far it came is not believed beyond the list.
func TestListBegunIsBounded(t *testing.T) {
	l := &list{launched: []uint32{0, 1, 1, 2}}
	require.EqualValues(t, 0, l.launchedBy(0))
	require.EqualValues(t, 1, l.launchedBy(2))
	require.EqualValues(t, 2, l.launchedBy(1<<31))

}
