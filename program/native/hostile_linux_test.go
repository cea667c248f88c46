//go:build !race

package native

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/program/library/librarytest"
)

// TestMemoryThatChanges: a client that writes to the bindings during a call can
// spoil only its own results. (The race detector would see its writes, hence the
// build tag.)
func TestMemoryThatChanges(t *testing.T) {
	sizes := map[string][]uint32{"embed_f32": {40, 30, 64}, "embed_q8_0": {40, 30, 64}}
	for _, name := range names {
		b, r := bodies[name], rand.New(rand.NewPCG(41, 42))
		cases := drawn()[name]
		if s, ok := sizes[name]; ok {
			cases = []librarytest.Case{librarytest.Sized(name, r, s...)}
		}

		c := cases[len(cases)-1]
		call := callOf(&c, c.Fresh())
		n, ok := b.Items(call)
		if !ok {
			continue
		}

		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !stop.Load() {
				for _, m := range call.Bindings {
					if w := u32s(m); len(w) > 0 {
						atomic.StoreUint32(&w[r.IntN(len(w))], r.Uint32()>>r.UintN(32))
					}
				}
			}
		}()

		for until := time.Now().Add(10 * time.Millisecond); time.Now().Before(until); {
			require.Nil(t, runs(b, call, n), c.Name)
		}

		stop.Store(true)
		<-done
	}
}
