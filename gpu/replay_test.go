package gpu

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// listHand is a device by hand that runs lists.
type listHand struct{ *handBackend }

func (b listHand) Info() backend.Info {
	info := b.handBackend.Info()
	info.Lists = true
	return info
}

// begun ends a list after so many of its entries.
func (b listHand) begun(id backend.JobID, how outcome.Outcome, n uint32) {
	b.mu.Lock()
	delete(b.live, id)
	b.mu.Unlock()
	b.sink.Complete(backend.Completion{ID: id, Outcome: how, DeviceTime: time.Microsecond, Begun: n})
}

// replayPlain pushes a replay without patches over a ring in memory.
func (c *client) replayPlain(list Handle) {
	c.push(ring.ReplayEntry(0, uint64(list), 0), nil, nil)
}

// A caller that closes an object in a list waits until the device is done with the list.
func TestListInUse(t *testing.T) {
	for name, closes := range map[string]func(s *Session, b, p, l Handle) error{
		"buffer":  func(s *Session, b, _, _ Handle) error { return s.DestroyBuffer(b) },
		"program": func(s *Session, _, p, _ Handle) error { return s.CloseProgram(p) },
		"list":    func(s *Session, _, _, l Handle) error { return s.CloseList(l) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hand := listHand{newHandBackend()}
				hand.obedient, hand.limits.MaxJobs = false, 1
				r := newMemRig(t, withBackend(hand))
				s := r.open("alice")
				b, p := buf(t, s, 4096), prog(t, s, "p")
				var rec recorder
				rec.fill(b, 0, 64, 1)
				rec.launch(p, nil, whole(b))
				l := rec.record(t, s)
				q := r.queue(s, 16, 4096)
				q.replayPlain(l)
				q.replayPlain(l) // waits for its turn
				synctest.Wait()
				closed := make(chan error, 1)
				go func() { closed <- closes(s, b, p, l) }()
				synctest.Wait()
				require.Empty(t, closed, "the device has it")
				q.replayPlain(l)
				hand.begun(hand.nth(t, 0), cancelledOutcome, 1)
				require.NoError(t, <-closed)
				c := q.take(3)
				require.Equal(t, revokedOutcome, c[0].Outcome)
				require.Equal(t, revokedOutcome, c[1].Outcome)
				require.Equal(t, gpuerr.Stale, c[2].Code)
				require.Len(t, hand.jobs, 1)
				require.Zero(t, s.launches.Load(), "only the fill was begun")
				r.close()
			})
		})
	}
}

// A list counts as one job, and its launches as far as they were begun. A device that
// says that it went further than there is anything is not believed.
func TestListIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := listHand{newHandBackend()}
		r := newMemRig(t, withBackend(hand), func(c *Config, _ *fake.Options) { c.LaunchRecords = 2 })
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		var rec recorder
		for range 3 {
			rec.launch(p, nil, whole(b))
			rec.fill(b, 0, 64, 1)
		}
		l := rec.record(t, s)
		q := r.queue(s, 16, 4096)
		for i, c := range []struct {
			how   outcome.Outcome
			begun uint32
			total uint64
		}{{outcome.Success, 6, 3}, {errorOutcome, 3, 5}, {outcome.Success, 1 << 31, 8}, {errorOutcome, 0, 8}} {
			q.replayPlain(l)
			synctest.Wait()
			require.Len(t, hand.jobs, i+1)
			require.Equal(t, backend.OpList, hand.jobs[i].Op)
			require.Len(t, hand.jobs[i].List, 6)
			hand.begun(hand.nth(t, i), c.how, c.begun)
			require.Equal(t, c.how, q.one().Outcome)
			require.Equal(t, c.total, s.launches.Load())
		}
		r.close()
	})
}

// stubborn is a device that cannot be closed at once.
type stubborn struct {
	listHand
	stopped chan struct{}
}

func (b stubborn) Close() error { <-b.stopped; return nil }

// When the device is lost with a list, nothing that the list reaches is used again
// before the device has stopped, its frame neither.
func TestListLostWithDevice(t *testing.T) {
	hand := stubborn{listHand{newHandBackend()}, make(chan struct{})}
	r := newRig(t, withBackend(hand))
	s := r.open("alice")
	b := buf(t, s, 4096)
	var rec recorder
	rec.fill(b, 0, 64, 1)
	l := rec.record(t, s)
	obj, err := handles.Lookup[list](s.handles, l)
	require.NoError(t, err)
	q := r.queue(s, 16, 4096)
	q.replay(l, ring.BindingPatch(0, 0, 64, 0))
	hand.sink.Complete(backend.Completion{ID: hand.nth(t, 0), Outcome: lostOutcome})
	require.Equal(t, outcome.DeviceLost, q.one().Outcome.Kind)
	require.EqualValues(t, 1, obj.pins.n.Load())
	require.Len(t, hand.last.List[0].Spans[0].Host, 64, "the job is as it was")
	require.Zero(t, obj.kept())
	close(hand.stopped)
	r.close()
	require.Equal(t, int64(closedPins), obj.pins.n.Load())
}

// A fault within what a list reaches is that of the list's session.
func TestListFault(t *testing.T) {
	hand := listHand{newHandBackend()}
	hand.dma = true
	r := newRig(t, withBackend(hand))
	s, other := r.open("alice"), r.open("bob")
	b := buf(t, s, 4096)
	far := buf(t, s, 1<<20)
	var rec recorder
	rec.fill(b, 0, 64, 1)
	rec.fill(far, 0, 64, 1)
	l := rec.record(t, s)
	q, p := r.queue(s, 16, 4096), r.queue(other, 16, 4096)
	p.fill(buf(t, other, 4096), 0, 64, 1)
	hand.nth(t, 0)
	q.replay(l)
	hand.nth(t, 1)
	in, err := handles.Lookup[buffer](s.handles, far)
	require.NoError(t, err)
	r.dev.Fault(Fault{IOVA: in.iova, Write: true, Count: 1})
	require.Equal(t, faultOutcome, q.one().Outcome)
	require.Equal(t, resetOutcome, p.one().Outcome)
	require.Equal(t, faultOutcome, s.Poisoned())
	r.close()
}

// Replays go on while what they use is taken away: each ends once, and memory that was
// taken away is not written to again.
func TestListRaces(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	dev, err := mock.New(mock.Options{})
	require.NoError(t, err)
	r := newRig(t, withBackend(dev))
	for round := range rounds {
		s := r.open("alice")
		a, b, p := buf(t, s, 4096), buf(t, s, 4096), prog(t, s, "fill_u32")
		var rec recorder
		for range 8 {
			rec.fill(a, 0, 4096, 0x11111111)
			rec.launch(p, words(0x22222222), whole(a))
			rec.copy(b, 0, a, 0, 4096)
		}
		l := rec.record(t, s)
		q := r.queue(s, 32, 1<<14)
		var all sync.WaitGroup
		start := make(chan struct{})
		for _, end := range []func(){
			func() {
				if s.DestroyBuffer(a) != nil {
					return // the session was first
				}
				// It is the same memory, most likely.
				info, err := s.CreateBuffer(t.Context(), 4096, 0)
				if err != nil {
					return
				}
				fresh, err := handles.Lookup[buffer](s.handles, info.Handle)
				if err != nil || !fresh.pins.pin() { // so that it stays mapped
					return
				}
				defer fresh.pins.unpin()
				for range 20 {
					for i := 0; i < len(fresh.host); i += 4 {
						if wordAt(fresh.host, i/4) != 0 {
							t.Error("memory was written to after it was taken away")
							return
						}
					}
				}
			},
			func() {
				if round%2 == 0 {
					_ = s.CloseProgram(p)
				}
			},
			func() {
				if round%3 == 0 {
					_ = s.CloseList(l)
				}
			},
			func() {
				if round%5 == 0 {
					_ = s.CancelQueue(q.h)
				}
			},
			func() {
				if round%7 == 0 {
					_ = s.Close()
				}
			},
		} {
			all.Go(func() { <-start; end() })
		}
		for i := range 10 {
			q.replay(l, []ring.Patch{ring.InlinePatch(uint16(1+i%4*3), 0, words(3)), ring.BindingPatch(0, 0, 64, 64)}[:i%3]...)
		}
		close(start)
		for i := range 10 {
			if round%7 == 0 {
				break // the session may be gone, and what was in the ring with it
			}
			c := q.one()
			require.EqualValues(t, i+1, c.UserData)
			switch c.Outcome.Kind {
			case outcome.OK, outcome.Revoked, outcome.Cancelled:
			case outcome.Failed:
				require.Equal(t, gpuerr.Stale, c.Code, "%v", c.Outcome)
			default:
				t.Fatalf("replay %d ended %v", i, c.Outcome)
			}
		}
		all.Wait()
		require.NoError(t, s.Close())
		r.idle(s)
		q.ring.Close()
	}
}

// A replay that was begun while its list was being closed is not sent any more: the caller
// that closes may have looked for it before the reactor had it.
func TestListWithdrawn(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	l := &list{session: s}
	l.pins.init()
	require.True(t, l.pins.pin())
	j := &job{queue: &queue{session: s}, uses: uses{list: l, pinned: true}}
	_, yes := j.withdrawn()
	require.False(t, yes)
	require.True(t, l.pins.close())
	how, yes := j.withdrawn()
	require.True(t, yes)
	require.Equal(t, revokedOutcome, how)
	j.letGo()
	<-l.pins.drained
}

// A list is run by the reactor itself for what a replay has made of it, not for what was
// recorded: patches may make short entries long, and the next replay has none of it.
func TestPatchedListIsAsLongAsItsPatches(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	const entries, bytes = 512, 32 << 10
	b := buf(t, s, bytes)
	var rec recorder
	var longer []uint64
	for i := range entries {
		rec.fill(b, 0, 4, 1)
		p := ring.BindingPatch(uint16(i), 0, 0, bytes)
		w := p.Words()
		longer = append(longer, w[:]...)
	}
	l, err := handles.Lookup[list](s.handles, rec.record(t, s))
	require.NoError(t, err)
	require.Positive(t, l.nanos)
	f := l.newFrame(ledger.Receipt{})
	for range 2 {
		require.Equal(t, gpuerr.None, f.apply(longer))
		require.Negative(t, f.nanos, "all of it is longer than the reactor may be held up")
		require.Equal(t, gpuerr.None, f.apply(longer[:4]))
		require.Greater(t, f.nanos, l.nanos)
		require.Equal(t, gpuerr.None, f.apply(nil))
		require.Equal(t, l.nanos, f.nanos)
	}
}
