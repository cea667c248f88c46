package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
	"capgpu/ring"
)

// failing is the pattern of fills that the script has something for.
const failing = 0xBAD0BAD0

func failFills(kind mock.FaultKind) rigOption {
	return withScript(mock.Fault{Kind: kind, Match: func(j *backend.Job) bool { return j.Op == backend.OpFill && j.Pattern == failing }})
}

func (c *client) copies(dst, src Handle) {
	c.push(ring.CopyEntry(0, uint64(dst), 0, uint64(src), 0, 64, 0), nil, nil)
}

func kinds(cs []ring.Completion) (all []outcome.Outcome) {
	for _, c := range cs {
		all = append(all, c.Outcome)
	}
	return all
}

// What reads what failed work was to write does not run, and spoils in turn; what shares
// no data runs; and so does what is published when that is known. Whatever it is that
// goes wrong.
func TestDataDependency(t *testing.T) {
	for kind, guilty := range map[mock.FaultKind]outcome.Outcome{
		mock.FaultErrorCompletion: errorOutcome, mock.FaultHang: hangOutcome, mock.FaultHangFunction: hangOutcome, mock.FaultLostCompletion: hangOutcome,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMemRig(t, failFills(kind), manyStrikes)
				s := r.open("alice")
				x, y, z, other := buf(t, s, 4096), buf(t, s, 4096), buf(t, s, 4096), buf(t, s, 4096)
				q := r.queue(s, 16, 0)
				q.mem.hide()
				q.fill(x, 0, 64, failing)
				q.copies(y, x)
				q.fill(other, 0, 64, 7)
				q.copies(z, y)
				q.fill(x, 0, 64, 9) // reads nothing
				q.mem.show()
				want := []outcome.Outcome{guilty, dependentOutcome, outcome.Success, dependentOutcome, outcome.Success}
				got := kinds(q.take(5))
				if kind == mock.FaultHangFunction && got[2] == resetOutcome { // it was in the device by then
					want[2] = resetOutcome
				}
				require.Equal(t, want, got)
				q.copies(y, x)
				requireOK(t, q.one())
				require.EqualValues(t, 9, host(t, s, y)[0])
				synctest.Wait()
				require.False(t, s.spoils.active.Load(), "nothing older is left")
				r.idleButBuffers(s)
				r.close()
			})
		})
	}
}

// What the device has already behind the work that fails never begins there.
func TestDeviceHoldsBackWhatDepends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev, err := mock.New(mock.Options{LogEntries: 64, Script: mock.Script{Faults: []mock.Fault{{Kind: mock.FaultSlow, Job: 1, Duration: mock.Duration(time.Second)}, {Kind: mock.FaultErrorCompletion, Job: 2}}}})
		require.NoError(t, err)
		r := newMemRig(t, withBackend(dev))
		s, bob := r.open("alice"), r.open("bob")
		const long = 256 << 10
		x, y, o := buf(t, s, long), buf(t, s, long), buf(t, bob, 4096)
		front, q := r.queue(bob, 16, 0), r.queue(s, 16, 0)
		front.fill(o, 0, 4, 1)
		synctest.Wait()
		q.fill(x, 0, long, 2)
		q.push(ring.CopyEntry(0, uint64(y), 0, uint64(x), 0, long, 0), nil, nil)
		time.Sleep(10 * time.Millisecond)
		log, _ := dev.Log()
		require.Len(t, log, 3, "the device has all of them")
		require.Equal(t, []outcome.Outcome{errorOutcome, dependentOutcome}, kinds(q.take(2)))
		log, _ = dev.Log()
		require.False(t, log[2].Started)
		requireOK(t, front.one())
		r.close()
	})
}

// A device that does not heed what a job needs is not given it before that has ended.
func TestDependentIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		x, y, o := buf(t, s, 4096), buf(t, s, 4096), buf(t, s, 4096)
		q, free := r.queue(s, 16, 0), r.queue(s, 16, 0)
		q.fill(x, 0, 64, 1)
		q.copies(y, x)
		first := hand.nth(t, 0)
		free.fill(o, 0, 64, 1)
		hand.nth(t, 1)
		synctest.Wait()
		require.Len(t, hand.jobs, 2, "what needs nothing goes before")
		hand.finish(first, errorOutcome, time.Millisecond)
		require.Equal(t, []outcome.Outcome{errorOutcome, dependentOutcome}, kinds(q.take(2)))
		hand.finish(hand.nth(t, 1), outcome.Success, time.Millisecond)
		requireOK(t, free.one())
		synctest.Wait()
		require.Len(t, hand.jobs, 2)
		r.close()
	})
}

// A wait for the order alone goes on; what reads the spoiled buffer does not run for that.
func TestOrderDependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t, failFills(mock.FaultErrorCompletion))
		s := r.open("alice")
		x, y, other := buf(t, s, 4096), buf(t, s, 4096), buf(t, s, 4096)
		f := newFence(t, s, 0)
		a, strict, order := r.queue(s, 16, 0), r.queue(s, 16, 0), r.queue(s, 16, 0)
		strict.wait(f, 1)
		strict.fill(other, 0, 64, 1)
		order.push(ring.WaitOrderEntry(0, uint64(f), 1), nil, nil)
		order.fill(other, 0, 64, 2)
		order.copies(y, x)
		synctest.Wait()
		a.mem.hide()
		a.fill(x, 0, 64, failing)
		a.signal(f, 1)
		a.mem.show()
		require.Equal(t, []outcome.Outcome{errorOutcome, errorOutcome}, kinds(a.take(2)))
		require.Equal(t, []outcome.Outcome{dependentOutcome, dependentOutcome}, kinds(strict.take(2)))
		require.Equal(t, []outcome.Outcome{outcome.Success, outcome.Success, dependentOutcome}, kinds(order.take(3)))
		require.EqualValues(t, 2, host(t, s, other)[0])
		order.copies(y, x)
		requireOK(t, order.one())
		r.close()
	})
}

// A list is one piece of work: it spoils all that it writes, and does not run when
// anything that it reads is spoiled.
func TestListsDepend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t, withScript(mock.Fault{Kind: mock.FaultErrorCompletion, Op: "list", Times: 1}))
		s := r.open("alice")
		x, y, z := buf(t, s, 4096), buf(t, s, 4096), buf(t, s, 4096)
		var bad, reads recorder
		bad.fill(x, 0, 64, failing)
		bad.fill(y, 0, 64, 1)
		reads.copy(z, 0, y, 0, 64)
		l, m := bad.record(t, s), reads.record(t, s)
		q := r.queue(s, 16, 0)
		q.mem.hide()
		q.replayPlain(l)
		q.replayPlain(m)
		q.copies(x, z)
		q.mem.show()
		want := []outcome.Outcome{errorOutcome, dependentOutcome, dependentOutcome}
		got := kinds(q.take(3))
		require.Equal(t, want, got)
		r.close()
	})
}

// A client that fails again and again, with a new buffer each time, while queues of its
// wait for ever, keeps no more here than a bound, and what is spoiled stays so.
//
// +checklocksignore: nobody else has it
func TestSpoilsAreBounded(t *testing.T) {
	s := &spoils{}
	ring := &marked{}
	held, q := &queue{ring: ring}, &queue{ring: &marked{}}
	s.queues = []*queue{held, q}
	first := &buffer{}
	fail := func(b *buffer) {
		x := &spoil{queue: q, buffers: []*buffer{b}}
		s.add(x)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tellLocked([]*spoil{x}, s.tailsLocked())
	}
	ring.published = 1
	fail(first)
	reader := func(pos uint64, b *buffer) *job {
		return &job{queue: held, pos: pos, buffers: []*buffer{{}, b}, work: backend.Job{Op: backend.OpCopy}}
	}
	require.True(t, s.hits(reader(0, first)))
	require.False(t, s.hits(reader(0, &buffer{})), "it shares no data")
	require.False(t, s.hits(reader(1, first)), "it was published later")
	for range 2*maxTold + 10 {
		fail(&buffer{})
	}
	require.LessOrEqual(t, len(s.told), maxTold)
	require.Len(t, held.marks, 1, "it was published no further")
	require.True(t, s.hits(reader(0, first)))
	require.False(t, s.hits(reader(1, first)))
	s.pass(held, 1)
	require.False(t, s.active.Load())
	require.Empty(t, s.told)
}

// marked is a ring that was published so far.
type marked struct {
	serverRing
	published uint64
}

func (m *marked) Marks() (taken, published, collected uint64) { return 0, m.published, 0 }
