package gpu

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// stuckBackend is a device that cannot be closed until it is let go.
type stuckBackend struct {
	*handBackend
	letGo chan struct{}
}

func (b *stuckBackend) Close() error { <-b.letGo; return nil }

// Memory that a lost device may still write to stays what it was until the backend
// says that it has stopped; how the work ended is told at once.
func TestLostDeviceKeepsItsMemory(t *testing.T) {
	for name, lose := range map[string]func(*handBackend, backend.JobID){
		"gone":         func(h *handBackend, _ backend.JobID) { h.sink.DeviceGone("all ones") },
		"completion":   func(h *handBackend, id backend.JobID) { h.finish(id, lostOutcome, 0) },
		"failed reset": func(*handBackend, backend.JobID) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			stuck := &stuckBackend{newHandBackend(), make(chan struct{})}
			stuck.obedient = false
			stuck.resetErr = gpuerr.New(gpuerr.Busy, "has not stopped yet")
			r := newMemRig(t, withBackend(stuck))
			s := r.open("alice")
			b := buf(t, s, 2*heap.CarveBytes)
			held, err := handles.Lookup[buffer](s.handles, b)
			require.NoError(t, err)
			q := r.queue(s, 16, 0)
			q.fill(b, 0, 4, 1)
			lose(stuck.handBackend, stuck.nth(t, 0))
			requireNotOK(t, q.one())
			<-r.dev.Lost()
			require.Len(t, stuck.last.Spans, 1)
			require.NotEmpty(t, stuck.last.Spans[0].Host, "the device may be reading the job")
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			time.Sleep(time.Minute)
			require.Empty(t, closed, name)
			require.GreaterOrEqual(t, fdOf(held), 0, "still mapped")
			require.NoError(t, r.dev.Check())
			close(stuck.letGo)
			require.NoError(t, <-closed)
			r.reclaimed()
			require.Negative(t, fdOf(held))
			r.close()
		})
	}
}

func TestDeviceLoss(t *testing.T) {
	for name, lose := range map[string]func(*handBackend, backend.JobID){
		"gone":         func(h *handBackend, _ backend.JobID) { h.sink.DeviceGone("all ones") },
		"twice":        func(h *handBackend, _ backend.JobID) { h.sink.DeviceGone("all ones"); h.sink.DeviceGone("again") },
		"completion":   func(h *handBackend, id backend.JobID) { h.finish(id, lostOutcome, 0) },
		"failed reset": func(h *handBackend, _ backend.JobID) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			hand := newHandBackend()
			hand.obedient = false
			hand.resetErr = gpuerr.New(gpuerr.DeviceLost, "not even to a reset")
			r := newMemRig(t, withBackend(hand))
			s, idle := r.open("alice"), r.open("bob")
			b, f, g := buf(t, s, 4096), newFence(t, s, 0), newFence(t, idle, 0)
			q, other := r.queue(s, 16, 0), r.queue(s, 16, 0)
			for range 4 {
				q.fill(b, 0, 4, 1)
			}
			q.signal(f, 1)
			other.wait(f, 9)
			other.signal(f, 9)
			id := hand.nth(t, 1)
			waited := make(chan FenceState, 1)
			go func() {
				st, err := idle.WaitFence(context.Background(), g, 1)
				require.NoError(t, err)
				waited <- st
			}()
			synctest.Wait()
			lose(hand, id)
			<-r.dev.Lost()
			require.ErrorIs(t, r.dev.Err(), gpuerr.DeviceLost, name)
			for _, c := range q.take(5) {
				if name == "failed reset" && c.UserData == 1 {
					continue // its deadline had passed before
				}
				require.Equal(t, outcome.DeviceLost, c.Outcome.Kind, "%s: entry %d", name, c.UserData)
			}
			require.Equal(t, outcome.DeviceLost, (<-waited).Outcome.Kind)
			synctest.Wait()
			require.Equal(t, gpuerr.DeviceLost, q.mem.code)
			for _, err := range []error{s.Err(), idle.Err(), s.SignalFence(f, 100), s.DestroyBuffer(b)} {
				require.ErrorIs(t, err, gpuerr.DeviceLost)
			}
			_, err := s.CreateBuffer(context.Background(), 1, 0)
			require.ErrorIs(t, err, gpuerr.DeviceLost)
			_, err = r.dev.OpenSession(Attach{Tenant: "carol"})
			require.ErrorIs(t, err, gpuerr.DeviceLost)
			require.NotEmpty(t, r.dev.Status("").Lost)
			require.NoError(t, s.Close())
			r.idle(s)
			r.close()
		})
	}
}

// A client that was told that the device is lost finds it so: no request of it succeeds then.
func TestLostBeforeItIsTold(t *testing.T) {
	for name, lose := range map[string]func(*handBackend, *client, Handle){
		"completion": func(h *handBackend, q *client, b Handle) {
			q.fill(b, 0, 4, 1)
			h.finish(h.nth(q.t.(testing.TB), 0), lostOutcome, 0)
		},
		"refusal": func(h *handBackend, q *client, b Handle) {
			h.refuse = gpuerr.New(gpuerr.DeviceLost, "all ones")
			q.fill(b, 0, 4, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			hand := newHandBackend()
			r := newMemRig(t, withBackend(hand))
			s := r.open("alice")
			b, q := buf(t, s, 4096), r.queue(s, 16, 0)
			r.dev.mu.Lock() // whatever else a loss has to do: it waits here
			losing := make(chan struct{})
			go func() {
				defer close(losing)
				lose(hand, q, b)
			}()
			how, lost := q.one().Outcome, isClosed(r.dev.lost)
			r.dev.mu.Unlock()
			<-losing
			require.Equal(t, lostOutcome, how)
			require.True(t, lost)
			require.ErrorIs(t, s.Err(), gpuerr.DeviceLost)
			r.close()
		})
	}
}

// A device that was removed ends everything at once.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hand := newDMADevice(t, nil)
		s := r.open("alice")
		b, f, q := buf(t, s, 4096), newFence(t, s, 0), r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		q.signal(f, 1)
		hand.nth(t, 0)
		begin := time.Now()
		r.dev.Gone("it was unplugged")
		require.Equal(t, lostOutcome, q.take(2)[1].Outcome)
		require.ErrorIs(t, s.Err(), gpuerr.DeviceLost)
		require.ErrorContains(t, s.Err(), "it was unplugged")
		require.Zero(t, time.Since(begin))
		r.close()
	})
}

// fdOf is the descriptor of a buffer's memory; -1 once that is freed.
func fdOf(b *buffer) int {
	fd, _ := b.mem.File()
	return fd
}
