package gpu

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// newMemo is a queue that nobody serves, and a buffer for what it is asked to remember.
func newMemo(t *testing.T) (*burstBackend, *queue, Handle) {
	b := newBurstBackend()
	r := newMemRig(t, withBursts(b))
	s := r.open("alice")
	q := newQueue(s, 64, 4096)
	q.burst.init(q)
	return b, q, buf(t, s, 4096)
}

// inSlot is a fill as it is taken out of a kept slot: known or not, as the ring says.
func inSlot(q *queue, slot int, version uint32, m Handle, pattern uint32) *ring.Taken {
	x := memEntry{Entry: ring.FillEntry(0, uint64(m), 0, 4, pattern, 0)}
	t := x.take(0)
	t.Slot, t.Version = slot, version
	if k := q.burst.memo.known; slot >= 0 && slot < len(k) && k[slot] != nil && k[slot].Version == version {
		t = ring.Taken{Known: k[slot], Slot: slot, Version: version, Entry: ring.Entry{Op: t.Op}}
	}
	return &t
}

// picked is remember in a burst of its own.
func picked(q *queue, t *ring.Taken) *resolved {
	q.burst.picks++
	q.burst.memo.once = 0
	return q.remember(t)
}

// What is in a slot is resolved once for each version, and what is in none each time.
func TestMemo(t *testing.T) {
	b, q, m := newMemo(t)
	for range 3 {
		require.EqualValues(t, 7, picked(q, inSlot(q, 2, 1, m, 7)).job.work.Pattern)
	}
	require.EqualValues(t, 1, b.prepared.Load())
	hit := inSlot(q, 2, 1, m, 7)
	require.NotNil(t, hit.Known)
	require.EqualValues(t, 8, picked(q, inSlot(q, 2, 2, m, 8)).job.work.Pattern)
	require.EqualValues(t, 2, b.prepared.Load())

	require.Nil(t, picked(q, hit), "the slot has another version since it was taken")
	require.Equal(t, gpuerr.Invalid, hit.Code)
	require.EqualValues(t, 8, picked(q, inSlot(q, 2, 2, m, 8)).job.work.Pattern)

	q.burst.picks++
	require.NotNil(t, q.remember(inSlot(q, 2, 2, m, 8)))
	require.NotNil(t, q.remember(inSlot(q, 2, 2, m, 8)), "twice in one burst")
	require.Nil(t, q.remember(inSlot(q, 2, 3, m, 9)), "and not over one that is to run")
	require.NotNil(t, picked(q, inSlot(q, 2, 3, m, 9)))

	before := b.prepared.Load()
	q.burst.picks++
	q.burst.memo.once = 0
	seen := map[*resolved]bool{}
	for range onceSlots {
		r := q.remember(inSlot(q, -1, 0, m, 1))
		require.False(t, seen[r])
		seen[r] = true
	}
	require.Nil(t, q.remember(inSlot(q, -1, 0, m, 1)), "so many in a burst")
	require.Equal(t, before+onceSlots, b.prepared.Load())
}

// What was dropped is resolved anew, from what the ring knows; what is closed is refused, and
// what is not for bursts is not asked about again.
func TestMemoDrops(t *testing.T) {
	b, q, m := newMemo(t)
	require.NotNil(t, picked(q, inSlot(q, 0, 1, m, 7)))
	hit := inSlot(q, 0, 1, m, 7)
	q.burst.memo.slots[0].drop() // between take and begin
	require.EqualValues(t, 7, picked(q, hit).job.work.Pattern)
	require.EqualValues(t, 2, b.prepared.Load())

	other := buf(t, q.session, 4096)
	require.NotNil(t, picked(q, inSlot(q, 1, 1, other, 7)))
	hit = inSlot(q, 1, 1, other, 7)
	require.NoError(t, q.session.DestroyBuffer(other))
	q.forget()
	require.True(t, !q.burst.memo.slots[1].open() || q.burst.memo.slots[1].fitness == unknown)
	q.burst.memo.slots[1].drop()
	require.Nil(t, picked(q, hit))
	require.Equal(t, gpuerr.None, hit.Code, "it is for begin to say")
	require.EqualValues(t, other, hit.Object)

	b.unfit = func(*backend.Job) bool { return true }
	before := b.prepared.Load()
	for range 3 {
		require.Nil(t, picked(q, inSlot(q, 3, 1, m, 7)))
	}
	require.Equal(t, before+1, b.prepared.Load())
}

// toldRing is one that can be told to a successor.
type toldRing struct{ *memRing }

func (toldRing) Export() (st ring.State, mem, work, done int, err error) {
	fds := [3]int{}
	for i := range fds {
		if fds[i], err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return st, -1, -1, -1, err
		}
	}
	return st, fds[0], fds[1], fds[2], nil
}

// A queue that was told, and goes on after all, runs nothing that is of two versions of a
// slot: it is as if it had not been told.
func TestMemoIsTold(t *testing.T) {
	for _, tells := range []bool{false, true} {
		_, q, m := newMemo(t)
		q.ring = toldRing{newMemRing(ring.Config{Entries: 64, ArgBytes: 4096})}
		p, other := prog(t, q.session, "p"), buf(t, q.session, 4096)
		old := memEntry{Entry: ring.LaunchEntry(0, uint64(p), ring.Dim3{}, ring.Dim3{}, 0, 1), bindings: []ring.Binding{whole(m)}}
		young := memEntry{Entry: ring.LaunchEntry(0, uint64(p), ring.Dim3{}, ring.Dim3{}, 0, 2), bindings: []ring.Binding{whole(other)}}
		for _, x := range []*memEntry{&old, &young} {
			x.Count, x.D = 1, uint64(ring.BindingBytes)<<32
		}
		first, second := old.take(4096), young.take(4096)
		first.Version, second.Version = 1, 2
		require.NotNil(t, picked(q, &first))
		hit := ring.Taken{Known: q.burst.memo.known[0], Version: 1, Entry: ring.Entry{Op: ring.OpLaunch}}
		// The client has written the slot too early: an entry that names the old version follows.
		q.scratch = &scratch{batch: &ring.Batch{Entries: []ring.Taken{second, hit}}}
		if tells {
			qi, _, err := q.export()
			require.NoError(t, err)
			require.Equal(t, []TakenImage{{Words: second.Words, Args: second.Args}, {Words: first.Words, Args: first.Args}}, qi.Left)
		}
		left := q.leftEntries()
		require.EqualValues(t, 2, picked(q, &left[0]).known.Version)
		require.True(t, picked(q, &left[1]) == nil)
		require.Equal(t, gpuerr.Invalid, left[1].Code)
	}
}

// Launches, fills and copies do, end and cost the same, in kept slots and in the queue.
func TestKeptAndPlain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type step struct{ what, of, off, pattern int }
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{rapid.IntRange(0, 7).Draw(rt, "what"), rapid.IntRange(0, 3).Draw(rt, "of"), rapid.IntRange(0, 3).Draw(rt, "off"), rapid.IntRange(0, 2).Draw(rt, "pattern")}
		}), 1, 60).Draw(rt, "steps")
		run := func(plain bool) (told []string) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurstBackend()
				b.unfit = func(j *backend.Job) bool { return j.Pattern == 2 }
				b.slow = true
				r := newMemRig(t, withBursts(b))
				s := r.open("alice")
				q := r.queue(s, 16, 4096) // with four slots
				q.mem.plain = plain
				var bufs [4]Handle
				for i := range bufs {
					bufs[i] = buf(t, s, 4096)
				}
				p := prog(t, s, "p")
				pushed := 0
				collect := func() {
					for _, c := range q.take(pushed) {
						told = append(told, fmt.Sprint(c))
					}
					pushed = 0
				}
				for _, x := range steps {
					h, off := bufs[x.of], uint64(4*x.off)
					switch x.what {
					case 0, 1:
						q.launch(p, ring.Binding{Buffer: uint64(h), Off: off, Len: 4})
					case 2, 3:
						q.fill(h, off, 4, uint32(x.pattern))
					case 4:
						q.push(ring.CopyEntry(0, uint64(h), off, uint64(bufs[0]), 16, 4, 0), nil, nil)
					case 5:
						q.fill(h, off, 4095, 1) // no multiple of 4
					case 6:
						collect()
						synctest.Wait()
						if x.of > 0 {
							_ = s.DestroyBuffer(h) // its handle stays in use
						}
						continue
					case 7:
						collect()
						continue
					}
					if pushed++; pushed == 16 {
						collect()
					}
				}
				collect()
				synctest.Wait()
				for _, h := range bufs {
					if x, err := lookup[buffer](s.handles, h); err == nil {
						told = append(told, fmt.Sprint(binary.LittleEndian.Uint64(x.host), binary.LittleEndian.Uint64(x.host[8:])))
					}
				}
				told = append(told, fmt.Sprint(s.launches.Load(), s.ended[outcome.OK].Load(), s.Budget()[ledger.DeviceTime].Used))
				r.close()
			})
			return told
		}
		require.Equal(t, run(true), run(false))
	})
}

// hungryBurster is one whose Ready takes all that it may.
type hungryBurster struct{ *burster }

type hungryReady struct {
	preparedJob
	takes []byte
}

func (b hungryBurster) Prepare(job *backend.Job, old backend.Ready) (backend.Ready, int64, bool) {
	r, _ := old.(*hungryReady)
	if r == nil {
		r = &hungryReady{}
	}
	own := int(reflect.TypeFor[hungryReady]().Size())
	if n := int(backend.ReadyBytes(uint64(len(job.Spans)))) - own; n > cap(r.takes) {
		r.takes = make([]byte, 0, n*7/8) // which may be rounded up
	}
	r.job = job
	return r, 1000, true
}

// Builtin takes as many buffers, and bytes of inline arguments, as its name says.
func (hungryBurster) Builtin(name string) (backend.Program, error) {
	var bindings int
	p := &loadedProgram{info: handInfo}
	_, err := fmt.Sscan(name, &bindings, &p.info.InlineBytes)
	p.info.Bindings = slices.Repeat(handInfo.Bindings, bindings)
	return p, err
}

// What a memo takes is charged, whatever was in its slots: arguments of all sizes, each all
// inline or all bindings.
func TestMemoIsCharged(t *testing.T) {
	all := uint32(8 * maxOnceArgs)
	b := newBurstBackend()
	b.limits.MaxBindings, b.limits.MaxInlineBytes = all/ring.BindingBytes, all
	r := newMemRig(t, withBackend(hungryBurster{&burster{b}}))
	s := r.open("alice")
	m := buf(t, s, 4096)
	programs := map[uint32][2]Handle{}
	sizes := []uint32{8, 64, 136, 320, ring.KeptArgBytes, all}
	for _, n := range sizes {
		var both [2]Handle
		for i, bindings := range []uint32{0, n / ring.BindingBytes} {
			p, _, err := s.OpenProgram(fmt.Sprint(bindings, n-bindings*ring.BindingBytes))
			require.NoError(t, err)
			both[i] = p
		}
		programs[n] = both
	}
	const queues = 4
	fill := func(q *queue, slot int, version, args uint32, p Handle, bindings uint32) {
		x := memEntry{Entry: ring.LaunchEntry(0, uint64(p), ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3{X: 32, Y: 1, Z: 1}, 0, 0), inline: make([]byte, args-bindings*ring.BindingBytes)}
		x.bindings = slices.Repeat([]ring.Binding{{Buffer: uint64(m), Len: 4096}}, int(bindings))
		x.SetArgs(0, int(bindings), len(x.inline))
		taken := x.take(args)
		taken.Slot, taken.Version = slot, version
		require.NotNil(t, q.remember(&taken))
	}
	var made [queues]*queue
	for i := range made {
		made[i] = newQueue(s, 1024, 4096)
		made[i].burst.init(made[i])
	}
	before := heapBytes()
	for _, q := range made {
		slots := q.burst.slots
		for turn, args := range sizes {
			for way, p := range programs[args] {
				bindings := uint32(way) * (args / ring.BindingBytes)
				q.burst.picks++
				q.burst.memo.once = 0
				for slot := range slots {
					if args <= ring.KeptArgBytes {
						fill(q, slot, uint32(2*turn+way+1), args, p, bindings)
					}
				}
				for range onceSlots {
					fill(q, -1, 0, args, p, bindings)
				}
			}
		}
	}
	took := (heapBytes() - before) / queues
	charged := memoBytes(made[0].burst.slots)
	require.LessOrEqual(t, took, charged)
	require.Greater(t, took, charged*6/10, "and it is not far from that")
	runtime.KeepAlive(made)
}

// heapBytes is what is in use of the heap.
func heapBytes() uint64 {
	var st runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&st)
	return st.HeapAlloc
}
