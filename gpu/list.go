package gpu

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/gpu/recording"
	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/ring"
)

// Bounds of a recording. They are published (docs/wire.md).
const (
	MaxListEntries  = backend.MaxListEntries
	MaxListArgBytes = 64 << 10
)

// list is launches, copies and fills that a session recorded once and replays often
// (replay.go).
//
//	RecordList: bytes ─► charge, copy ─► recording ─► check.go resolve ─► jobs
//	a replay:   ring ─► replay.go resolveReplay (patches) ─► engine ─► backend.OpList
//
// It holds nothing of what is in it while no replay runs: a replay pins the list, and
// closing a buffer or a program that is in it ends the list first (listSet.kill). It
// is dead then: its replays are stale, and what it is charged comes back when it is
// closed itself, or its session is.
type list struct {
	session *Session
	h       Handle
	node    *revoke.Node
	pins    pins // replays
	charge  ledger.Receipt

	jobs     []backend.Job // by entry; not changed any more once the list is published
	parts    []part        // the same
	launched []uint32      // how many launches are among the first so many entries
	number   uint64        // backend.Job.Recording
	nanos    int64         // that all entries are expected to take; 0: it is submitted (dispatch.go)
	in       []*listSet    // the sets that it is in

	// recording is the bytes that it was made of, for a successor (snapshot.go).
	recording []byte
	entries   uint32
	argBytes  uint32

	mu sync.Mutex
	// +checklocks:mu
	free []*frame // that no replay uses
	// recorded says that what is above is not added to any more, and dead that no
	// replay runs and none will (forget).
	//
	// +checklocks:mu
	recorded, dead bool
}

// part is what the patches of one entry are checked against.
type part struct {
	buffers []*buffer // by span
	program *program  // of a launch
	natural bool      // its grid follows from its bindings
	nanos   int64     // that it is expected to take, as recorded; 0: it is not fit to run here
}

// listSet is the lists that an object is in. The zero value is empty.
type listSet struct {
	any atomic.Bool // there are or were some
	mu  sync.Mutex
	// +checklocks:mu
	lists map[*list]struct{}
}

// add is called while the object is pinned: kill then comes later, and finds the list.
func (s *listSet) add(l *list) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		s.lists = map[*list]struct{}{}
		s.any.Store(true)
	}
	if _, known := s.lists[l]; known {
		return false
	}
	s.lists[l] = struct{}{}
	return true
}

func (s *listSet) remove(l *list) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lists, l)
}

// kill ends the lists that an object is in, and returns when no replay of them is left.
// The object's own pins are closed and drained. It may be called more than once.
func (s *listSet) kill() {
	if !s.any.Load() {
		return
	}
	s.mu.Lock()
	lists := make([]*list, 0, len(s.lists))
	for l := range s.lists {
		lists = append(lists, l)
	}
	s.mu.Unlock()
	for _, l := range lists {
		l.quiesce()
		l.forget(false, true)
	}
}

// The charges for a list, in hostMemory: an upper bound of what is kept of a recording,
// here and in the backend. A copy of it for patches (frame) is charged the same.
const (
	listFixedBytes = 1 << 10
	listEntryBytes = 1 << 10
	listArgFactor  = 4
)

func listBytes(entries, argBytes uint32) uint64 {
	bytes, _ := roundUp(listFixedBytes + listEntryBytes*uint64(entries) + listArgFactor*uint64(argBytes))
	return bytes
}

// RecordList makes a list of a recording (package recording), which lies in a buffer of the
// session: so many entries, then argBytes of arguments. It is copied out once. The
// errors name the entry.
func (s *Session) RecordList(from Handle, off uint64, entries, argBytes uint32) (Handle, error) {
	if err := s.enterToWork(); err != nil {
		return 0, err
	}
	defer s.node.Leave()
	switch {
	case !s.dev.cfg.Backend.Info().Lists:
		return 0, gpuerr.New(gpuerr.Unimplemented, "this device runs no lists; submit the commands one by one")
	case entries == 0 || entries > MaxListEntries:
		return 0, gpuerr.New(gpuerr.Invalid, "entries is %d; a list has 1 to %d", entries, MaxListEntries)
	case argBytes > MaxListArgBytes || argBytes%ring.ArgAlign != 0:
		return 0, gpuerr.New(gpuerr.Invalid, "argBytes is %d; it must be a multiple of %d, at most %d", argBytes, ring.ArgAlign, MaxListArgBytes)
	}
	if err := s.banned(); err != nil {
		return 0, err
	}
	if err := s.audited(); err != nil {
		return 0, err
	}
	l := &list{session: s, entries: entries, argBytes: argBytes, number: s.dev.recordings.Add(1)}
	l.pins.init()
	var err error
	if l.charge, err = s.reserve(context.Background(), ledger.HostMemory, listBytes(entries, argBytes)); err != nil {
		return 0, err
	}
	b, err := s.copyOut(from, off, uint64(entries)*ring.EntryBytes+uint64(argBytes))
	if err == nil {
		l.recording = b
		err = l.record(recording.New(b, entries), int(entries))
	}
	if err != nil {
		l.release()
		return 0, err
	}
	if err := l.ready(); err != nil {
		l.release()
		return 0, err
	}
	l.charge.Commit()
	l.forget(true, false)
	if l.node, err = s.node.NewChild("list", revoke.Ops{Quiesce: l.quiesce, Release: l.release}); err != nil {
		l.release()
		return 0, s.closedError(err)
	}
	if err := s.handles.Add(l, func(h Handle) { l.h = h }); err != nil {
		l.node.CloseAsync(err) // not Close: we are inside the session
		return 0, err
	}
	s.audit("list.record", "list=%#x entries=%d launches=%d", uint64(l.h), entries, l.launched[entries])
	return l.h, nil
}

// ready has the backend make what the list needs. The session is charged for that time.
func (l *list) ready() error {
	s := l.session
	recorder := s.dev.reactor.traits.recorder
	if recorder == nil {
		return nil
	}

	if err := s.account.CanSpend(ledger.DeviceTime); err != nil {
		return err
	}
	ctx, stop := heap.WhileOpen(context.Background(), s.node.Done())
	defer stop()
	began := time.Now()
	defer func() { s.spendTime(time.Since(began)) }()
	return recorder.Ready(ctx, &s.context, l.jobs)
}

// record resolves every entry as if it were submitted now.
func (l *list) record(r *recording.Recording, entries int) error {
	l.jobs, l.parts = make([]backend.Job, entries), make([]part, entries)
	l.launched = make([]uint32, entries+1)
	q := &queue{session: l.session}
	j := &job{queue: q}
	var t ring.Taken
	for i := range entries {
		err := r.Entry(i, &t)
		if err == nil {
			err = l.resolve(q, j, i, &t)
		}
		if err != nil {
			e := *gpuerr.From(err)
			e.Msg = fmt.Sprintf("entry %d: %s", i, e.Msg)
			return &e
		}
		l.launched[i+1] = l.launched[i]
		if t.Op == ring.OpLaunch {
			l.launched[i+1]++
		}
	}
	return nil
}

// resolve makes a job of the i-th entry. Everything in it is pinned meanwhile, so that
// whatever closes it later finds the list.
func (l *list) resolve(q *queue, j *job, i int, t *ring.Taken) error {
	if t.Op == ring.OpLaunch && l.session.facet < FacetProgram {
		return errNoPrograms
	}
	defer j.letGo()
	if code := q.resolve(j, t); code != gpuerr.None {
		return listError(code)
	}
	if !j.pin() {
		return handles.ErrStale
	}
	w, to, p := &j.work, &l.jobs[i], &l.parts[i]
	*to = backend.Job{
		Op: w.Op, Program: w.Program, Grid: w.Grid, Block: w.Block, Shared: w.Shared, Pattern: w.Pattern,
		Spans: append([]backend.Span(nil), w.Spans...), Inline: append([]byte(nil), w.Inline...),
		Context: w.Context, Check: w.Check,
	}
	*p = part{buffers: append([]*buffer(nil), j.buffers...), program: j.program}
	p.natural = t.Op == ring.OpLaunch && t.Grid() == (ring.Dim3{}) && t.Block() == (ring.Dim3{})
	for _, b := range p.buffers {
		l.join(&b.lists)
	}
	if p.program != nil {
		l.join(&p.program.lists)
	}
	p.nanos = l.session.dev.reactor.prepare(to, nil)
	l.nanos = sumNanos(l.nanos, p.nanos)
	return nil
}

func (l *list) join(s *listSet) {
	if s.add(l) {
		l.in = append(l.in, s)
	}
}

// listError says more than the code of a refused entry.
func listError(code gpuerr.Code) error {
	switch code {
	case gpuerr.Stale:
		return handles.ErrStale
	case gpuerr.LaunchLimit:
		return gpuerr.New(code, "the launch has more workgroups, threads, shared memory or arguments than the device takes, or another workgroup than the program")
	}
	return gpuerr.New(code, "a range is not within its buffer, overlaps, or has another use than the buffer; or the arguments are not those of the program")
}

// CloseList ends a list. Replays of it are cancelled and end revoked.
func (s *Session) CloseList(h Handle) error {
	l, err := remove[list](s, h)
	if err != nil {
		return err
	}
	if err := l.node.Close(errDestroyed); err != nil {
		return err
	}
	s.audit("list.close", "list=%#x", uint64(h))
	return nil
}

// quiesce returns when no replay of the list runs, and none will. It may be called more
// than once.
func (l *list) quiesce() {
	l.pins.close()
	if l.node == nil || !l.node.ClosedByParent() { // else nothing runs that could have it, nor will
		l.session.cancelAll(func(j *job) bool { return j.list == l })
	}
	<-l.pins.drained
}

// release also takes back what was recorded of a list that did not come to be. No
// replay uses it.
func (l *list) release() {
	l.forget(true, true)
	l.charge.Release()
}

// forget notes that the list is recorded, or dead, and if it is both lets go of all that
// it was made of: nobody pays for that any more, as for the code of a program that was
// closed, and the client need not close the list.
func (l *list) forget(recorded, dead bool) {
	l.mu.Lock()
	l.recorded, l.dead = l.recorded || recorded, l.dead || dead
	if !l.recorded || !l.dead {
		l.mu.Unlock()
		return
	}
	if r := l.session.dev.reactor.traits.recorder; r != nil {
		r.Forget(l.number) // under the lock: the one that unmaps what is in the list comes later
	}
	free, in := l.free, l.in
	l.free, l.in, l.jobs, l.parts, l.recording = nil, nil, nil, nil, nil
	l.mu.Unlock()
	for _, s := range in {
		s.remove(l)
	}
	for _, f := range free {
		f.charge.Release()
	}
}

// launchedBy is how many launches were begun when so many entries were.
func (l *list) launchedBy(begun uint64) uint32 {
	return l.launched[min(begun, uint64(len(l.launched)-1))]
}
