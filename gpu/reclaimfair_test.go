package gpu

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/heap"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// slowFree makes the pool's Free take its time: about 4 GiB are freed in a second.
func slowFree(_ *Config, o *fake.Options) {
	o.LimitBytes = 1 << 40
	o.Hooks.Free = func(_ ddf.IOVA, n uint64) error {
		time.Sleep(time.Duration(n>>20) * 250 * time.Microsecond)
		return nil
	}
}

// A tenant that closes and opens again at its limit does not wait for a neighbour's remains.
func TestReclaimWaitsForNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t, withBackend(newHandBackend()), slowFree)
		one := func(a *Attach) { a.TenantLimits = limited(ledger.Sessions, 1) }
		alice, bob := r.open("alice"), r.open("bob", one)
		for range 12 {
			buf(t, alice, 1<<30)
		}
		for range 20 {
			buf(t, bob, 1<<20)
		}
		require.NoError(t, alice.Close())
		require.NoError(t, bob.Close())
		began := time.Now()
		r.open("bob", one)
		require.LessOrEqual(t, time.Since(began), 10*time.Millisecond, "bob's own take 5 ms")
		require.False(t, isClosed(alice.node.Finished()))
		r.reclaimed()
		r.close()
	})
}

// stickyPool's ranges are scrubbed when somebody lets it, as memory is punched when a client
// lets go of its lock on the inode.
type stickyPool struct {
	ddf.DMAPool
	letGo chan struct{}
}

type stickyBuffer struct {
	ddf.DMABuffer
	pool *stickyPool
}

func (p *stickyPool) Alloc(ctx context.Context, n uint64) (ddf.DMABuffer, error) {
	b, err := p.DMAPool.Alloc(ctx, n)
	if err != nil {
		return nil, err
	}
	return &stickyBuffer{b, p}, nil
}

func (b *stickyBuffer) Scrub(off, n uint64) error {
	<-b.pool.letGo
	return b.DMABuffer.Scrub(off, n)
}

// A client that holds up the end of its own buffer holds up its own reclaim, and no
// other's.
func TestReclaimWaitsForNoClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := &stickyPool{letGo: make(chan struct{})}
		r := newMemRig(t, withBackend(newHandBackend()))
		pool.DMAPool, r.dev.cfg.DMA = r.dev.cfg.DMA, pool
		one := func(a *Attach) { a.TenantLimits = limited(ledger.Sessions, 1) }
		alice := r.open("alice")
		b := buf(t, alice, 4096)
		buf(t, alice, 4096)
		destroyed := make(chan error, 1)
		go func() { destroyed <- alice.DestroyBuffer(b) }()
		synctest.Wait()
		require.NoError(t, alice.Close())
		second := r.open("alice")
		require.NoError(t, second.Close())
		time.Sleep(time.Second)
		for range 3 {
			bob := r.open("bob", one)
			buf(t, bob, 2*heap.CarveBytes)
			require.NoError(t, bob.Close())
		}
		synctest.Wait()
		began := time.Now()
		r.open("bob", one)
		require.LessOrEqual(t, time.Since(began), headStart, "bob's own")
		ctx, stop := context.WithTimeout(context.Background(), time.Hour)
		require.ErrorIs(t, r.dev.Reclaimed(ctx), context.DeadlineExceeded, "alice's are not")
		stop()
		require.False(t, isClosed(alice.node.Finished()) || isClosed(second.node.Finished()))
		close(pool.letGo)
		require.NoError(t, <-destroyed)
		<-alice.node.Finished()
		<-second.node.Finished()
		r.reclaimed()
		r.close()
	})
}

// A close is not answered while a lost device may still run something of the session, a
// list neither.
func TestCloseWaitsForALostDevice(t *testing.T) {
	for name, push := range map[string]func(q *client, l, b Handle){
		"fill":   func(q *client, _, b Handle) { q.push(ring.FillEntry(0, uint64(b), 0, 64, 1, 0), nil, nil) },
		"replay": func(q *client, l, _ Handle) { q.replayPlain(l) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hand := stubborn{listHand{newHandBackend()}, make(chan struct{})}
				r := newMemRig(t, withBackend(hand))
				s := r.open("alice")
				b := buf(t, s, 4096)
				var rec recorder
				rec.fill(b, 0, 64, 1)
				l := rec.record(t, s)
				q := r.queue(s, 16, 4096)
				push(q, l, b)
				synctest.Wait()
				hand.sink.Complete(backend.Completion{ID: hand.nth(t, 0), Outcome: lostOutcome})
				require.Equal(t, outcome.DeviceLost, q.one().Outcome.Kind)
				closed := make(chan error, 1)
				go func() { closed <- s.Close() }()
				synctest.Wait()
				require.Empty(t, closed)
				close(hand.stopped)
				require.NoError(t, <-closed)
				r.close()
			})
		})
	}
}
