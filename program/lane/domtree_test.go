package lane

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDominanceIsWalkingUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		f := &fn{blocks: make([]block, 1+r.IntN(40))}
		for b := 1; b < len(f.blocks); b++ {
			f.blocks[b].idom = r.Int32N(int32(b))
		}
		tree := f.domTree()
		for a := range f.blocks {
			for b := range f.blocks {
				up := int32(b)
				for up > int32(a) {
					up = f.blocks[up].idom
				}
				require.Equal(t, up == int32(a), tree.dominates(int32(a), int32(b)), "%d and %d", a, b)
			}
		}
	}
}
