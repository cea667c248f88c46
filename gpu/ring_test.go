package gpu

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// The same over a real ring: memory, pipes and all.
func TestRealRing(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	a, b := buf(t, s, 1<<16), buf(t, s, 1<<16)
	f := newFence(t, s, 0)
	copyProg := prog(t, s, "copy")
	q := r.queue(s, 64, 1<<16)
	for round := range uint32(50) {
		q.fill(a, 0, 1<<16, round)
		q.launch(copyProg, whole(a), whole(b))
		q.signal(f, uint64(round)+1)
		requireOK(t, q.take(3)...)
		require.Equal(t, round, binary.LittleEndian.Uint32(host(t, s, b)[1<<16-4:]))
	}
	st, err := s.FenceState(f)
	require.NoError(t, err)
	require.EqualValues(t, 50, st.Reached)
	require.NoError(t, s.CancelQueue(q.h))
	q.fill(a, 0, 4, 1)
	requireOK(t, q.one())
	require.NoError(t, s.CloseQueue(q.h))
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	_, err = q.ring.Wait(ctx, make([]ring.Completion, 1))
	require.ErrorIs(t, err, gpuerr.Closed)
}

// A client that writes nonsense into the header loses that queue.
func TestRealRingBreach(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	info, err := s.CreateQueue(16, 64)
	require.NoError(t, err)
	spin := prog(t, s, "spin")
	memFD, sqFD, cqFD, err := s.QueueFDs(info.Handle)
	require.NoError(t, err)
	keep := func(fd int) int {
		kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(kept) })
		return kept
	}
	clientMem, clientSQ := memFD, sqFD
	memFD, sqFD = keep(memFD), keep(sqFD)
	attached, err := ring.Attach(clientMem, clientSQ, cqFD)
	require.NoError(t, err)
	defer attached.Close()
	bad, good := &client{t: t, s: s, h: info.Handle, ring: attached}, r.queue(s, 16, 64)
	bad.launch(spin)
	const sqTail = 0x040 // docs/wire.md
	memory, err := unix.Mmap(memFD, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	binary.LittleEndian.PutUint64(memory[sqTail:], 1<<40)
	require.NoError(t, unix.Munmap(memory))
	if _, err = unix.Write(sqFD, []byte{1}); err != unix.EPIPE { // the driver may sleep, or have seen it already
		require.NoError(t, err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	var done [4]ring.Completion
	for {
		n, err := bad.ring.Wait(ctx, done[:])
		if err != nil {
			require.ErrorIs(t, err, gpuerr.Protocol)
			break
		}
		for _, c := range done[:n] {
			require.Equal(t, protocolOutcome, c.Outcome)
		}
	}
	good.push(ring.NopEntry(0), nil, nil)
	requireOK(t, good.one())
}

// Several clients of several sessions do everything at once, while sessions come
// and go and the device fails now and then. The books must balance at the end.
func TestStress(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	end := time.Now().Add(1500 * time.Millisecond)
	for worker := range 4 {
		wg.Go(func() {
			tenant := []string{"alice", "bob"}[worker%2]
			for round := uint64(0); time.Now().Before(end); round++ {
				s, err := r.dev.OpenSession(Attach{Tenant: tenant, TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits(), Facet: FacetFull})
				require.NoError(t, err)
				stressSession(t, r, s, round)
				require.NoError(t, s.Close())
				if round%4 > 0 {
					continue
				}
				<-s.node.Finished()
				require.NoError(t, s.account.Zero())
			}
		})
	}
	wg.Go(func() {
		for time.Now().Before(end) {
			require.NoError(t, r.dev.Check())
			r.dev.Status("")
			runtime.Gosched()
		}
	})
	wg.Wait()
	r.reclaimed()
	require.NoError(t, r.dev.Check())
	require.Zero(t, r.fn.Pool().Usage().UsedBytes)
}

func stressSession(t *testing.T, r *rig, s *Session, round uint64) {
	copyProg := prog(t, s, "copy")
	f := newFence(t, s, 0)
	var wg sync.WaitGroup
	for range 2 {
		info, err := s.CreateQueue(32, 4096)
		require.NoError(t, err)
		q := &client{t: t, s: s, h: info.Handle, ring: attachNow(t, s, info.Handle)}
		wg.Go(func() {
			defer q.ring.Close()
			for i := range 20 {
				a, b := buf(t, s, 4096), buf(t, s, 8192)
				q.fill(a, 0, 4096, uint32(i))
				q.launch(copyProg, whole(a), whole(b))
				q.push(ring.NopEntry(0), nil, nil)
				switch i % 5 {
				case 0:
					require.NoError(t, s.DestroyBuffer(a))
				case 1:
					require.NoError(t, s.CancelQueue(q.h))
				}
				for _, c := range q.take(3) {
					require.NotEqual(t, outcome.Pending, c.Outcome.Kind)
				}
			}
		})
	}
	wg.Go(func() {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		for v := uint64(1); v <= 20; v++ {
			require.NoError(t, s.SignalFence(f, v))
			st, err := s.WaitFence(ctx, f, v)
			require.NoError(t, err)
			require.Equal(t, outcome.Success, st.Outcome)
		}
	})
	if round%3 == 2 { // close under way
		child, err := s.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
		require.NoError(t, err)
		q := r.queue(child, 32, 64)
		b := buf(t, child, 1<<20)
		for range 30 {
			q.fill(b, 0, 1<<20, 7)
		}
		require.NoError(t, child.Close())
		q.ring.Close()
	}
	wg.Wait()
}

// On the data path nothing is allocated per operation.
func TestDataPathAllocatesNothing(t *testing.T) {
	hand := newHandBackend()
	hand.auto = true
	r := newRig(t, withBackend(&quietBackend{handBackend: hand}))
	s := r.open("alice")
	b, p, f := buf(t, s, 4096), prog(t, s, "p"), newFence(t, s, 0)
	q := r.queue(s, 64, 4096)
	var out [64]ring.Completion
	bind := []ring.Binding{whole(b)}
	launch := ring.LaunchEntry(1, uint64(p), ring.Dim3{}, ring.Dim3{}, 0, 0)
	fill, value := ring.FillEntry(1, uint64(b), 0, 4, 1, 0), uint64(0)
	batch := func() {
		for range 10 {
			e := launch
			if q.ring.Push(&e, bind, nil) != nil {
				t.Fatal("push")
			}
			e = fill
			if q.ring.Push(&e, nil, nil) != nil {
				t.Fatal("push")
			}
		}
		value++
		e := ring.SignalEntry(1, uint64(f), value)
		q.ring.Push(&e, nil, nil)
		q.ring.Flush()
		for got := 0; got < 21; {
			n, err := q.ring.Poll(out[:])
			if err != nil {
				t.Fatal(err)
			}
			if got += n; n == 0 {
				runtime.Gosched()
			}
		}
	}
	for range 20 {
		batch() // every job of the ring is made
	}
	require.Less(t, testing.AllocsPerRun(200, batch), 1.0)
}

// quietBackend completes at once and keeps no record of jobs.
type quietBackend struct{ *handBackend }

func (b *quietBackend) Submit(j *backend.Job) error {
	b.sink.Complete(backend.Completion{ID: j.ID, Outcome: outcome.Success, DeviceTime: time.Microsecond})
	return nil
}

func BenchmarkLaunch(b *testing.B) {
	for _, batch := range []int{1, 256} {
		name := "depth1"
		if batch > 1 {
			name = "batch256"
		}
		b.Run(name, func(b *testing.B) {
			hand := newHandBackend()
			hand.limits.MaxJobs = 64
			r := newRig(b, withBackend(&quietBackend{handBackend: hand}))
			s := r.open("alice")
			mem, p := buf(b, s, 4096), prog(b, s, "p")
			q := r.queue(s, 512, 1<<16)
			bind := []ring.Binding{whole(mem)}
			launch := ring.LaunchEntry(1, uint64(p), ring.Dim3{}, ring.Dim3{}, 0, 0)
			var out [512]ring.Completion
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += batch {
				for range batch {
					e := launch
					if err := q.ring.Push(&e, bind, nil); err != nil {
						b.Fatal(err)
					}
				}
				q.ring.Flush()
				for got := 0; got < batch; {
					n, err := q.ring.Poll(out[:])
					if err != nil {
						b.Fatal(err)
					}
					if got += n; n == 0 {
						runtime.Gosched()
					}
				}
			}
		})
	}
}

// A fault in a ring's memory ends that queue; the driver and its other queues go on.
func TestRingMemoryGone(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	good := r.queue(s, 16, 64) // its memory is mapped once more, by its client
	before := ringMappings(t)
	info, err := s.CreateQueue(16, 64)
	require.NoError(t, err)
	q, err := handles.Lookup[queue](s.handles, info.Handle)
	require.NoError(t, err)
	for m := range ringMappings(t) {
		if !before[m] {
			require.NoError(t, unix.Mprotect(m.bytes(), unix.PROT_NONE))
		}
	}
	require.NoError(t, s.CancelQueue(info.Handle), "which looks at the ring")
	select {
	case <-q.done:
	case <-time.After(10 * time.Second):
		require.Fail(t, "the queue goes on")
	}
	require.NoError(t, s.CloseQueue(info.Handle))
	good.push(ring.NopEntry(0), nil, nil)
	requireOK(t, good.one())
}

type mapping struct{ from, to uintptr }

// ringMappings are the rings mapped by this process.
func ringMappings(t *testing.T) map[mapping]bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	all := map[mapping]bool{}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:capgpu-ring") {
			var m mapping
			_, err := fmt.Sscanf(line, "%x-%x", &m.from, &m.to)
			require.NoError(t, err)
			all[m] = true
		}
	}
	return all
}

// A client that launches one by one is served while the reactor looks at its ring. Requests
// of others to the queue are seen in between.
func TestServedWhileItLooks(t *testing.T) {
	r := newRig(t, withBackend(newDoer()))
	s := r.open("alice")
	m, q, p := buf(t, s, 4096), r.queue(s, 16, 4096), prog(t, s, "p")
	var wg sync.WaitGroup
	var stop atomic.Bool
	var ok atomic.Uint64
	wg.Go(func() {
		for !stop.Load() {
			q.launch(p, whole(m))
			switch c := q.one(); c.Outcome {
			case outcome.Success:
				ok.Add(1)
			case cancelledOutcome: // by CancelQueue
			default:
				t.Errorf("a launch ended %v", c.Outcome)
			}
		}
	})
	defer wg.Wait()
	defer stop.Store(true)
	goesOn := func() {
		for before := ok.Load(); ok.Load() < before+100; {
			runtime.Gosched()
		}
	}
	for range 20 {
		goesOn()
		require.NoError(t, s.CancelQueue(q.h))
		goesOn()
		require.NoError(t, r.dev.Freeze(t.Context()))
		still := ok.Load() // and one that was told and not counted
		runtime.Gosched()
		require.LessOrEqual(t, ok.Load(), still+1)
		r.dev.Thaw()
	}
}
