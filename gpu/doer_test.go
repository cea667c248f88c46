package gpu

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// doer is a device that does copies, fills and launches, which add 1 to the first word of
// what they are given: each within Submit, or one after the other on goroutines of its own.
type doer struct {
	*handBackend
	slow   bool
	before func(*backend.Job) // called before each job; nil: nothing

	wg   sync.WaitGroup
	last chan struct{} // closed when the job sent last has ended; Submit is called by one at a time
}

func newDoer() *doer { return &doer{handBackend: newHandBackend()} }

func (d *doer) Submit(j *backend.Job) error {
	if !d.slow {
		d.end(j)
		return nil
	}
	before, done := d.last, make(chan struct{})
	d.last = done
	d.wg.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		d.end(j)
	})
	return nil
}

func (d *doer) end(j *backend.Job) {
	id := j.ID
	if d.before != nil {
		d.before(j)
	}
	switch to := j.Spans[0].Host; j.Op {
	case backend.OpCopy:
		copy(to, j.Spans[1].Host)
	case backend.OpFill:
		for i := 0; i+4 <= len(to); i += 4 {
			binary.LittleEndian.PutUint32(to[i:], j.Pattern)
		}
	case backend.OpLaunch:
		binary.LittleEndian.PutUint32(to, binary.LittleEndian.Uint32(to)+1)
	}
	d.sink.Complete(backend.Completion{ID: id, Outcome: outcome.Success, DeviceTime: time.Microsecond})
}

func (d *doer) Cancel(backend.JobID) {}

// Reset returns when nothing runs, as a device's must: what it had has ended by then.
func (d *doer) Reset(ctx context.Context) error {
	d.wg.Wait()
	return d.handBackend.Reset(ctx)
}

func (d *doer) Close() error { d.wg.Wait(); return nil }

// A caller that reads the books after a completion finds in them what it says.
func TestBooksHaveWhatWasTold(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	q, m := r.queue(s, 16, 4096), buf(t, s, 64)
	nanos := uint64(0)
	for n := uint64(1); n <= 500; n++ {
		q.fill(m, 0, 64, 1)
		c := q.one()
		requireOK(t, c)
		nanos += c.DeviceNanos
		if n%16 != 0 {
			continue
		}
		budget := s.Budget()
		require.Zero(t, budget[ledger.InFlight].Reserved+budget[ledger.InFlight].Used)
		require.Equal(t, nanos, budget[ledger.DeviceTime].Used)
		require.Equal(t, n, r.dev.Status("alice").Tenants[0].Sessions[0].Outcomes["ok"])
		require.NoError(t, r.dev.Check())
	}
}

// Nothing of a buffer runs when its close has returned, whatever else happens to the device
// and its queues meanwhile.
func TestNothingRunsAfterItsClose(t *testing.T) {
	var open atomic.Uint64 // the address of the buffer that may be used; 0: none
	var wrong atomic.Int64
	d := newDoer()
	d.slow = true
	d.before = func(j *backend.Job) {
		if j.Pattern == 1 && j.Spans[0].IOVA != open.Load() {
			wrong.Add(1)
		}
	}
	r := newMemRig(t, withBackend(d))
	alice, bob := r.open("alice"), r.open("bob")
	var m atomic.Uint64 // the buffer that is used
	var used atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		q := r.queue(alice, 16, 64)
		wg.Go(func() {
			for !isClosed(stop) {
				q.push(ring.FillEntry(0, m.Load(), 0, 4, 1, 0), nil, nil)
				if q.one().Outcome.Kind == outcome.OK {
					used.Add(1)
				}
			}
		})
	}
	each := func(pause time.Duration, f func()) {
		wg.Go(func() {
			for !isClosed(stop) {
				f()
				time.Sleep(pause)
			}
		})
	}
	n, other := buf(t, bob, 4096), r.queue(bob, 16, 64)
	each(100*time.Microsecond, func() {
		other.fill(n, 0, 4, 2)
		requireOK(t, other.one())
	})
	each(time.Millisecond, func() {
		if r.dev.Freeze(t.Context()) == nil {
			r.dev.Thaw()
		}
	})
	each(300*time.Microsecond, func() { r.dev.reactor.setWeight(alice.flow.parent, 2) })
	for range 100 {
		h := buf(t, alice, 4096)
		x, err := handles.Lookup[buffer](alice.handles, h)
		require.NoError(t, err)
		open.Store(x.iova)
		before := used.Load()
		m.Store(uint64(h))
		for used.Load() < before+20 {
			time.Sleep(10 * time.Microsecond)
		}
		require.NoError(t, alice.DestroyBuffer(h))
		open.Store(0)
		time.Sleep(20 * time.Microsecond)
	}
	close(stop)
	wg.Wait()
	require.Zero(t, wrong.Load())
	require.NoError(t, r.dev.Check())
}

// Buffers, programs, queues and sessions go while work uses them. Nothing touches what
// DestroyBuffer or Close has returned for: its memory is gone, and the access would crash, or
// it is zero and somebody else's.
func TestThingsGoWhileWorkRuns(t *testing.T) {
	d := newDoer()
	r := newMemRig(t, withBackend(d))
	var wg sync.WaitGroup
	end := time.Now().Add(400 * time.Millisecond)
	for i := range 4 {
		wg.Go(func() {
			draw := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Now().Before(end) {
				workAndGone(t, r, draw, fmt.Sprint("tenant ", i%2))
			}
		})
	}
	wg.Wait()
	require.NoError(t, r.dev.Check())
}

func workAndGone(t *testing.T, r *rig, draw *rand.Rand, tenant string) {
	s := r.open(tenant)
	bytes := []uint64{4096, 2 << 20}[draw.IntN(2)] // carved, or with a mapping of its own
	m, keep := buf(t, s, bytes), buf(t, s, 4096)
	p, q := prog(t, s, "p"), r.queue(s, 64, 4096)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; !isClosed(stop); n++ {
			q.fill(m, 0, min(bytes, 16<<10), 0xabababab)
			q.launch(p, whole(m))
			q.fill(keep, 0, 4, 1)
			if n%8 == 7 {
				q.mem.mu.Lock()
				closed := q.mem.code != gpuerr.None
				q.mem.read, q.mem.unread = q.mem.completed, nil
				q.mem.mu.Unlock()
				q.mem.bell()
				if closed {
					return
				}
				time.Sleep(10 * time.Microsecond)
			}
		}
	})
	time.Sleep(time.Duration(draw.IntN(300)) * time.Microsecond)
	switch draw.IntN(4) {
	case 0:
		require.NoError(t, s.DestroyBuffer(m))
		again := buf(t, s, bytes)
		for range 20 {
			require.Equal(t, -1, firstNonZero(host(t, s, again)))
			time.Sleep(time.Microsecond)
		}
	case 1:
		require.NoError(t, s.CloseProgram(p))
		launched := s.launches.Load()
		time.Sleep(100 * time.Microsecond)
		require.Equal(t, launched, s.launches.Load())
	case 2:
		require.NoError(t, s.CancelQueue(q.h))
		require.NoError(t, s.CloseQueue(q.h))
	}
	require.NoError(t, s.Close())
	close(stop)
	wg.Wait()
}
