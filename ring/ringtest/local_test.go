package ringtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// A ring within one process speaks the protocol on virtual time, with wakes that may be late.
func TestLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := time.Duration(0)
		l, err := New(ring.Config{Entries: 4, ArgBytes: 64}, Options{Late: func(toDriver bool) time.Duration {
			if toDriver {
				return late
			}
			return 0
		}})
		require.NoError(t, err)
		b := ring.NewBatch(64)
		go func() {
			for {
				if l.Server.WaitWork(context.Background()) != nil {
					return
				}
				if n, _ := l.Server.TakeMany(b, 8); n > 0 {
					var cs []ring.Completion
					for _, x := range b.Entries {
						cs = append(cs, ring.Completion{UserData: x.UserData, Outcome: outcome.Success})
					}
					l.Server.Publish(cs)
				}
			}
		}()
		for i := range uint64(10) {
			late = time.Duration(i) * time.Second
			synctest.Wait() // the driver sleeps
			began := time.Now()
			e := ring.NopEntry(i)
			require.NoError(t, l.Client.Push(&e, nil, nil))
			require.NoError(t, l.Client.Flush())
			var out [4]ring.Completion
			n, err := l.Client.Wait(t.Context(), out[:])
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, i, out[0].UserData)
			require.Equal(t, late, time.Since(began))
		}
		l.Server.Close(gpuerr.Closed)
		_, err = l.Client.Wait(t.Context(), make([]ring.Completion, 1))
		require.ErrorIs(t, err, gpuerr.Closed)
		require.NoError(t, l.Client.Close())
		synctest.Wait()
	})
}

// A hostile client's lie ends the ring.
func TestLocalCorrupt(t *testing.T) {
	for _, word := range []int{WordSQTail, WordCQHead} {
		l, err := New(ring.Config{Entries: 4, ArgBytes: 64}, Options{})
		require.NoError(t, err)
		b := ring.NewBatch(64)
		for range 20 { // cqHead is looked at only when room is short
			e := ring.NopEntry(1)
			if l.Client.Push(&e, nil, nil) != nil || l.Client.Flush() != nil {
				break
			}
			l.Corrupt(word, func(uint64) uint64 { return 1000 })
			if _, err = l.Server.TakeMany(b, 8); err != nil {
				break
			}
			l.Server.Publish(make([]ring.Completion, len(b.Entries)))
		}
		require.ErrorIs(t, err, gpuerr.Protocol)
		require.Equal(t, gpuerr.Protocol, l.Ended())
		l.Server.Close(gpuerr.Protocol)
		require.NoError(t, l.Client.Close())
	}
}
