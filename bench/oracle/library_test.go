package oracle_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/bench/oracle"
	"capgpu/program"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
)

// engines are all engines of this machine: lane, and each lavapipe. It logs them,
// so that a missing one is noticed.
func engines(t *testing.T) []oracle.Engine {
	t.Helper()
	all := []oracle.Engine{
		&oracle.Lane{SubgroupSize: 8},
		&oracle.Lane{SubgroupSize: 32, Workers: 2, Cut: 1},
		&oracle.Native{},
	}

	drivers, missing := oracle.Drivers()
	for _, d := range drivers {
		e, err := oracle.OpenLavapipe(d)
		require.NoError(t, err)
		t.Cleanup(e.Close)
		all = append(all, e)
	}

	t.Logf("oracle: %d of %d engines present", len(all), len(all)-len(drivers)+2)
	if missing != nil {
		t.Logf("absent: %v", missing)
	}

	return all
}

// TestLibrary runs every kernel of the library, in cases of its models, on every
// engine; the result must equal the model's, within the tolerance of the kernel's
// manifest.
func TestLibrary(t *testing.T) {
	all := engines(t)
	cases := int(number(t, "CAPGPU_ORACLE_CASES", 6))
	ran := map[string]int{}
	left := map[string]int{}
	for _, name := range library.Names() {
		t.Run(name, func(t *testing.T) {
			data, ok := library.Bundle(name)
			require.True(t, ok)
			b, err := program.Parse(data)
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(7, uint64(len(name))))
			for i, c := range librarytest.Cases(name, r, librarytest.Edges(name)+cases) {
				l := &oracle.Launch{
					SPIRV: b.SPIRV, Manifest: b.Manifest, Grid: c.Natural(), Block: librarytest.Block(name), Inline: c.Inline, Bindings: c.Fresh(),
				}
				for _, e := range all {
					got, err := e.Run(l)
					if errors.Is(err, oracle.ErrNotMine) {
						left[e.Name()]++
						continue
					}
					require.NoErrorf(t, err, "case %d: %s on %s", i, c.Name, e.Name())
					require.NoErrorf(t, c.Compare(got), "case %d on %s", i, e.Name())
					ran[e.Name()]++
				}
			}
		})
	}

	for _, e := range all {
		t.Logf("oracle: %s: %d launches, %d left to others", e.Name(), ran[e.Name()], left[e.Name()])
	}
}
