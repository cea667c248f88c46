package gpu

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/ring"
)

// looksRing is a ring that counts the looks at it, and ends when there were far too many.
type looksRing struct {
	*memRing
	looks, takes atomic.Int64
}

func (l *looksRing) Ready() bool {
	l.looks.Add(1)
	return l.memRing.Ready()
}

func (l *looksRing) TakeMany(b *ring.Batch, most int) (int, error) {
	if l.takes.Add(1) > 10_000 {
		return 0, gpuerr.New(gpuerr.Protocol, "too many looks")
	}
	return l.memRing.TakeMany(b, most)
}

// A queue looks at its ring only while another processor is left whose queue does not, if
// there is one.
func TestPollersLeaveAProcessor(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	served, err := lookup[queue](s.handles, r.queue(s, 16, 64).h)
	require.NoError(t, err)
	looks := &looksRing{memRing: newMemRing(ring.Config{Entries: 16})}
	q := &queue{session: s, node: served.node, ring: looks, jobs: make([]*job, 16), batch: ring.NewBatch(0)}
	e := r.dev.engine
	for e.pollers.Load() > 0 { // the other queue's
		runtime.Gosched()
	}
	for others := range int32(runtime.GOMAXPROCS(0)) {
		e.pollers.Add(others)
		before := looks.looks.Load()
		require.False(t, q.poll(0))
		require.Equal(t, others < max(1, int32(runtime.GOMAXPROCS(0))-1), looks.looks.Load() > before, "with %d others", others)
		e.pollers.Add(-others)
	}
}

// A queue whose client leaves no room for completions sleeps, though there are entries.
func TestFullQueueSleeps(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	l := &looksRing{}
	r.dev.newRing = func(cfg ring.Config) (serverRing, error) {
		l.memRing = newMemRing(cfg)
		return l, nil
	}
	info, err := s.CreateQueue(16, 64)
	require.NoError(t, err)
	q := &client{t: t, s: s, h: info.Handle, mem: l.memRing}
	const room = 32
	for range room + 8 {
		q.push(ring.NopEntry(0), nil, nil)
	}
	require.Eventually(t, func() bool { return q.left() == room }, 10*time.Second, time.Millisecond)
	for before := int64(-1); before != l.takes.Load(); before = l.takes.Load() {
		for range 1000 {
			runtime.Gosched()
		}
	}
	require.Less(t, l.takes.Load(), int64(1000))
	requireOK(t, q.take(room+8)...)
}
