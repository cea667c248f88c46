package library_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
	"capgpu/program/verify"
)

// randomCases is how many random cases of each kernel run; the edge cases always do.
func randomCases() int {
	if n, err := strconv.Atoi(os.Getenv("CAPGPU_KERNEL_CASES")); err == nil {
		return n
	}
	return 3
}

func admit(t *testing.T, name string) *verify.Program {
	t.Helper()
	bundle, ok := library.Bundle(name)
	require.True(t, ok)
	p, err := verify.Admit(bundle, verify.DefaultLimits())
	require.NoError(t, err)
	return p
}

func groups(g program.Dim3) uint64 { return uint64(g.X) * uint64(g.Y) * uint64(g.Z) }

// run launches a case over fresh bindings, in one piece, or each workgroup by itself
// on two workers beside each other.
func run(k *lane.Kernel, c *librarytest.Case, grid program.Dim3, cut bool) ([][]byte, lane.Result) {
	launch := &lane.Launch{Grid: grid, Bindings: c.Fresh(), Inline: c.Inline}
	var stop atomic.Uint32
	all := groups(grid)
	if !cut {
		return launch.Bindings, k.NewWorker().Run(launch, 0, all, &stop)
	}
	var next atomic.Uint64
	var results [2]lane.Result
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			w := k.NewWorker()
			for results[i].Trap.Kind == outcome.NoTrap {
				at := next.Add(1) - 1
				if at >= all {
					return
				}
				results[i] = w.Run(launch, at, at+1, &stop)
			}
		})
	}
	wg.Wait()
	if results[0].Trap.Kind != outcome.NoTrap {
		return launch.Bindings, results[0]
	}
	return launch.Bindings, results[1]
}

// The library, as admitted, is what its manifests say.
func TestKernelsAreAdmitted(t *testing.T) {
	for _, name := range library.Names() {
		p := admit(t, name)
		require.Equal(t, name, p.Info.Name)
		require.Empty(t, p.Info.Warnings, name)
		require.False(t, p.Info.OrderDependent, name)
		digest, _ := library.Digest(name)
		require.Equal(t, digest, p.Info.Digest)
	}
}

// Every kernel does what its model does, for every subgroup size, however the
// workgroups are cut, on any grid and, where it is free, any workgroup.
func TestKernelsOnLanes(t *testing.T) {
	for _, name := range library.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := admit(t, name)
			blocks := []program.Dim3{{}}
			if p.Info.BlockFree {
				blocks = append(blocks, program.Dim3{X: 37, Y: 1, Z: 1}, program.Dim3{X: 8, Y: 4, Z: 2}, program.Dim3{X: 1, Y: 1, Z: 1})
			}
			var kernels []*lane.Kernel
			for _, block := range blocks {
				for _, size := range []int{8, 16, 32, 64} {
					k, err := lane.Compile(p, lane.Options{SubgroupSize: size, Block: block})
					require.NoError(t, err)
					kernels = append(kernels, k)
				}
			}
			r := rand.New(rand.NewPCG(11, 12))
			for i, c := range librarytest.Cases(name, r, librarytest.Edges(name)+randomCases()) {
				grids := []program.Dim3{c.Natural()}
				if c.Grid == (program.Dim3{}) {
					grids = append(grids, program.Dim3{X: 1, Y: 1, Z: 1}, program.Dim3{X: 3, Y: 2, Z: 2})
				}
				for j, grid := range grids {
					k := kernels[(i*len(grids)+j)%len(kernels)]
					for _, cut := range []bool{false, true} {
						got, result := run(k, &c, grid, cut)
						require.Equal(t, lane.Result{}, result, "%s grid %v cut %v", c.Name, grid, cut)
						require.NoError(t, c.Compare(got), "grid %v cut %v", grid, cut)
					}
				}
			}
		})
	}
}

// The same launch gives the same bits however it is cut and whatever the subgroups.
func TestKernelsRepeatBitForBit(t *testing.T) {
	for _, name := range library.Names() {
		p := admit(t, name)
		r := rand.New(rand.NewPCG(13, 14))
		cases := librarytest.Cases(name, r, librarytest.Edges(name))
		if len(cases) == 0 {
			continue
		}
		c := cases[len(cases)-1]
		var first [][]byte
		for _, size := range []int{8, 16, 32, 64} {
			k, err := lane.Compile(p, lane.Options{SubgroupSize: size})
			require.NoError(t, err)
			for _, cut := range []bool{false, true} {
				got, _ := run(k, &c, c.Natural(), cut)
				if first == nil {
					first = got
				}
				require.Equal(t, first, got, "%s, subgroups of %d, cut %v", name, size, cut)
			}
		}
	}
}

// Sizes that do not fit trap, name the binding, and nothing is written.
func TestKernelsTrap(t *testing.T) {
	for _, name := range library.Names() {
		p := admit(t, name)
		k, err := lane.Compile(p, lane.Options{})
		require.NoError(t, err)
		for _, c := range librarytest.Traps(name) {
			got, result := run(k, &c, c.Natural(), false)
			require.Equal(t, outcome.OutOfBounds, result.Trap.Kind, c.Name)
			require.EqualValues(t, c.Trap, result.Trap.Binding, c.Name)
			require.NoError(t, c.Compare(got))
		}
	}
}

func TestSpinEndsWhenTold(t *testing.T) {
	k, err := lane.Compile(admit(t, "spin"), lane.Options{})
	require.NoError(t, err)
	var stop atomic.Uint32
	time.AfterFunc(20*time.Millisecond, func() { stop.Store(1) })
	result := k.NewWorker().Run(&lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}}, 0, 1, &stop)
	require.True(t, result.Stopped)
}

// On a grid of more workgroups than can be numbered, those too many do nothing:
// saxpy would show an element done twice.
func TestKernelsOnHugeGrids(t *testing.T) {
	k, err := lane.Compile(admit(t, "saxpy_f32"), lane.Options{})
	require.NoError(t, err)
	c := librarytest.Sized("saxpy_f32", rand.New(rand.NewPCG(17, 18)), 1000, 1000)
	const most = 1 << 20
	for _, grid := range []program.Dim3{
		{X: program.MaxGrid, Y: program.MaxGrid, Z: program.MaxGrid},
		{X: 1, Y: program.MaxGrid, Z: program.MaxGrid},
		{X: 5, Y: 1, Z: program.MaxGrid},
		{X: 257, Y: 4093, Z: 3},
	} {
		launch := &lane.Launch{Grid: grid, Bindings: c.Fresh(), Inline: c.Inline}
		var stop atomic.Uint32
		w := k.NewWorker()
		for _, from := range []uint64{0, 4, most - 40, most, 1 << 24, 1 << 32, groups(grid) - 20} {
			to := min(from+20, groups(grid))
			if from == 0 {
				to = 4 // 1000 elements
			}
			if from < to {
				require.Equal(t, lane.Result{}, w.Run(launch, from, to, &stop))
			}
		}
		require.NoError(t, c.Compare(launch.Bindings), "%v", grid)
	}
}
