package manager

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDMAList compares the list with a map.
func TestDMAList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pool := make([]*dmaMemory, 20)
	for i := range pool {
		pool[i] = &dmaMemory{generation: uint64(i)}
	}
	var l dmaList
	model := map[*dmaMemory]bool{}
	for range 5000 {
		d := pool[random.IntN(len(pool))]
		if random.IntN(2) == 0 {
			l.add(d)
			model[d] = true
		} else {
			l.remove(d)
			delete(model, d)
		}
		var want []*dmaMemory
		for _, d := range pool {
			require.Equal(t, model[d], l.has(d))
			if model[d] {
				want = append(want, d)
			}
		}
		require.Equal(t, len(want), l.n)
		require.ElementsMatch(t, want, slices.Collect(l.all()))
	}
}
