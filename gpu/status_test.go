package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/handles"
	"capgpu/gpu/records"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

func TestStatus(t *testing.T) {
	r := newMemRig(t)
	alice, bob := r.open("alice"), r.open("bob")
	b := buf(t, alice, 5000)
	q := r.queue(alice, 16, 64)
	q.fill(b, 0, 4, 1)
	q.fill(b, 1<<40, 4, 1)
	q.take(2)
	text, err := json.Marshal(r.dev.Status("alice"))
	require.NoError(t, err)
	var st struct {
		Device, Backend string
		Tenants         []struct {
			Tenant string
			Budget []struct {
				Class string
				Used  uint64
			}
			Sessions []struct {
				ID, Buffers, MemoryBytes, HeldBytes, InFlight uint64
				Facet                                         string
				Outcomes                                      map[string]uint64
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &st))
	require.Equal(t, "mock", st.Backend)
	require.Len(t, st.Tenants, 1, "one tenant does not see another")
	require.Equal(t, "alice", st.Tenants[0].Tenant)
	s := st.Tenants[0].Sessions[0]
	require.EqualValues(t, 1, s.Buffers)
	require.EqualValues(t, 8192, s.MemoryBytes)
	require.EqualValues(t, 256<<10, s.HeldBytes, "a chunk")
	require.Equal(t, "full", s.Facet)
	require.Equal(t, map[string]uint64{"ok": 1, "failed": 1}, s.Outcomes)
	require.Len(t, r.dev.Status("").Tenants, 2)
	require.Empty(t, r.dev.Status("nobody").Tenants)
	require.NoError(t, bob.Close())
	r.reclaimed()
	require.Empty(t, r.dev.Status("bob").Tenants[0].Sessions)
}

// A job that uses an object which is being closed is not sent to the device, wherever the
// job was when the close began.
func TestWithdrawnJobIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		h := buf(t, s, 4096)
		b, err := handles.Lookup[buffer](s.handles, h)
		require.NoError(t, err)
		q := r.queue(s, 16, 0)
		for range sentLeast + 2 {
			q.fill(h, 0, 4, 1)
		}
		synctest.Wait()
		require.True(t, b.pins.close())
		for i := range sentLeast {
			hand.finish(hand.nth(t, i), outcome.Success, 0)
		}
		c := q.take(sentLeast + 2)
		requireOK(t, c[:sentLeast]...)
		require.Equal(t, []outcome.Outcome{revokedOutcome, dependentOutcome}, kinds(c[sentLeast:]))
		require.Len(t, hand.jobs, sentLeast)
		require.NoError(t, s.DestroyBuffer(h))
		r.close()
	})
}

// stuckPool answers nothing until its caller gives up.
type stuckPool struct {
	ddf.DMAPool
	stuck atomic.Bool
}

func (p *stuckPool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	if p.stuck.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.DMAPool.Alloc(ctx, bytes)
}

func TestCloseDoesNotWaitForThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fn, err := fake.New(fake.Options{})
		require.NoError(t, err)
		pool := &stuckPool{DMAPool: fn.Grants().DMA}
		dev, err := New(Config{Backend: newHandBackend(), DMA: pool, newRing: newTestRing})
		require.NoError(t, err)
		s, err := dev.OpenSession(Attach{Tenant: "alice", TenantLimits: limited(0, 1), Limits: limited(0, 1)})
		require.NoError(t, err)
		pool.stuck.Store(true)
		made := make(chan error, 1)
		go func() {
			_, err := s.CreateBuffer(context.Background(), 1, 0)
			made <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-made, gpuerr.Busy)
		require.NoError(t, dev.Close(context.Background()))
		require.NoError(t, fn.Close())
	})
}

// slowLog is an audit log that takes records one by one, when told.
type slowLog struct {
	ddf.HardwareAuditLog
	taken chan string
}

func (l *slowLog) Append(kind, _ string) error {
	l.taken <- kind
	return errors.New("full")
}

// A log that is behind slows control calls down, and nothing else.
func TestAuditBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fn, err := fake.New(fake.Options{})
		require.NoError(t, err)
		log := &slowLog{taken: make(chan string)}
		hand := newHandBackend()
		hand.auto = true
		r := &rig{t: t, fn: fn, mem: true}
		r.dev, err = New(Config{Backend: hand, DMA: fn.Grants().DMA, Audit: log, newRing: newTestRing})
		require.NoError(t, err)
		s := r.open("alice")
		b := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		made := make(chan int, 1)
		go func() {
			n := 0
			for ; n < records.Pressure+10; n++ {
				if _, _, err := s.OpenProgram("p"); err != nil {
					break
				}
			}
			made <- n
		}()
		synctest.Wait()
		require.Empty(t, made, "the caller waits for the log")
		q.fill(b, 0, 4, 1) // the data path does not
		requireOK(t, q.one())
		drained := make(chan int)
		stop := make(chan struct{})
		go func() {
			n := 0
			for {
				select {
				case <-log.taken:
					n++
				case <-stop:
					drained <- n
					return
				}
			}
		}()
		require.Equal(t, records.Pressure+10, <-made)
		require.NoError(t, r.dev.Close(context.Background()))
		close(stop)
		require.Equal(t, records.Pressure+10+4, <-drained, "session.open, buffer.create, queue.create, all programs, session.close")
		require.NoError(t, fn.Close())
	})
}
