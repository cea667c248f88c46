package manager

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// Parallel work that clients cause in a driver never makes a Free fail: the driver would have
// to give up its device.
func TestParallelAllocAndFree(t *testing.T) {
	g := grant(t, grantTestLimits())
	link := dialGrants(t, g)
	pool, audit := link.GrantSet().DMA, link.GrantSet().Audit
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	const clients, rounds = 48, 40
	var working sync.WaitGroup
	errs := make(chan error, 3*clients)
	for c := range clients {
		working.Go(func() {
			for i := range rounds {
				giveUp, cancel := context.WithCancel(ctx)
				if c%3 == 0 && i%4 == 0 { // given up here, and still running there
					time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel)
				}
				b, err := pool.Alloc(giveUp, 64<<10)
				if err == nil {
					err = b.Free()
				} else if giveUp.Err() != nil || gpuerr.CodeOf(err) == gpuerr.Busy {
					err = nil
				}
				cancel()
				if err == nil && i%8 == 0 {
					err = audit.Append("buffer.create", "x")
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	working.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, link.GrantSet().Audit.Append("buffer.create", "the link is still good"))
	require.Eventually(t, func() bool { return pool.Usage().UsedBytes == 0 }, 10*time.Second, time.Millisecond)
}
