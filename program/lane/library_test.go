package lane

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
	"capgpu/program/verify"
)

func admit(t testing.TB, data []byte) *verify.Program {
	t.Helper()
	p, err := verify.Admit(data, verify.DefaultLimits())
	require.NoError(t, err)
	return p
}

// TestLibrary runs the library's kernels against their models.
func TestLibrary(t *testing.T) {
	for _, name := range library.Names() {
		if name == "spin" || name == "trap" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			data, _ := library.Bundle(name)
			p := admit(t, data)
			rng := rand.New(rand.NewPCG(1, 2))
			k, err := Compile(p, Options{Block: librarytest.Block(name), SubgroupSize: 8 << rng.IntN(4)})
			require.NoError(t, err)
			w := k.NewWorker()
			for _, c := range librarytest.Cases(name, rng, 12) {
				got := c.Fresh()
				grid := c.Natural()
				l := &Launch{Grid: grid, Bindings: got, Inline: c.Inline}
				r := w.Run(l, 0, grid.Count(), nil)
				require.Equal(t, outcome.NoTrap, r.Trap.Kind, "%s: %v", c.Name, r.Trap)
				require.NoError(t, c.Compare(got), "%s", c.Name)
			}
		})
	}
}
