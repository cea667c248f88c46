package library_test

import (
	"encoding/binary"
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
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// randomCases is the number of random cases of each kernel that run; the edge cases
// always do.
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

// run launches a case over fresh bindings, in one piece, or each workgroup by
// itself on two workers side by side.
func run(k *lane.Kernel, c *librarytest.Case, grid program.Dim3, cut bool) ([][]byte, lane.Result) {
	launch := &lane.Launch{Grid: grid, Bindings: c.Fresh(), Inline: c.Inline}
	var stop atomic.Uint32
	all := grid.Count()
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

// The admitted library agrees with its manifests.
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

// Every kernel computes the same as its model, for every subgroup size, for every
// division of the workgroups, on any grid and, if it is free, any workgroup.
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

// The same launch gives the same bits for every division and every subgroup size.
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

func TestSpinEndsOnStop(t *testing.T) {
	k, err := lane.Compile(admit(t, "spin"), lane.Options{})
	require.NoError(t, err)
	var stop atomic.Uint32
	time.AfterFunc(20*time.Millisecond, func() { stop.Store(1) })
	result := k.NewWorker().Run(&lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}}, 0, 1, &stop)
	require.True(t, result.Stopped)
}

// On a grid of more workgroups than can be numbered, the excess ones do nothing:
// with saxpy an element that is done twice would show.
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
		for _, from := range []uint64{0, 4, most - 40, most, 1 << 24, 1 << 32, grid.Count() - 20} {
			to := min(from+20, grid.Count())
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

// No kernel has a race, reads shared memory before it is written or has a barrier
// that not all lanes reach.
func TestKernelsAreClean(t *testing.T) {
	if raceEnabled {
		t.Skip("one worker: run without -race, which makes it slow")
	}
	for _, name := range library.Names() {
		k, err := lane.Compile(admit(t, name), lane.Options{Check: true})
		require.NoError(t, err)
		r := rand.New(rand.NewPCG(15, 16))
		var stop atomic.Uint32
		w := k.NewWorker()
		for _, c := range librarytest.Cases(name, r, librarytest.Edges(name)) {
			launch := &lane.Launch{Grid: c.Natural(), Bindings: c.Fresh(), Inline: c.Inline}
			require.Equal(t, lane.Result{}, w.Run(launch, 0, launch.Grid.Count(), &stop), c.Name)
			require.Empty(t, w.Findings(), c.Name)
		}
	}
}

// Without any one of its barriers a kernel has a race, which the checker finds: the
// kernels have no unneeded barrier, and the checker works.
func TestEveryBarrierCounts(t *testing.T) {
	if raceEnabled {
		t.Skip("one worker: run without -race, which makes it slow")
	}

	// These are counted by their order in the module. The first two are for the
	// next call of a function that these kernels call once; the third is between a
	// lane and itself.
	unneeded := map[string]int{"argmax_f32": 2, "reduce_f32": 2, "sample_topk_f32": 0}
	for _, name := range library.Names() {
		bundle, _ := library.Bundle(name)
		for i := 0; ; i++ {
			broken, ok := withoutBarrier(t, bundle, i)
			if !ok {
				break
			}
			if at, found := unneeded[name]; found && at == i {
				continue
			}
			p, err := verify.Admit(broken, verify.DefaultLimits())
			require.NoError(t, err)
			k, err := lane.Compile(p, lane.Options{Check: true})
			require.NoError(t, err)
			require.True(t, races(k, name), "%s without barrier %d", name, i)
		}
	}
}

// races runs a kernel's edge cases, in few workgroups that each do much, until there
// is a race.
func races(k *lane.Kernel, name string) bool {
	cases := librarytest.Cases(name, rand.New(rand.NewPCG(19, 20)), librarytest.Edges(name))
	var stop atomic.Uint32
	w := k.NewWorker()
	for i := range cases {
		c := &cases[len(cases)-1-i] // the large ones are last
		grid := program.Dim3{X: 1, Y: 1, Z: 1}
		if c.Grid != (program.Dim3{}) {
			grid = c.Grid
		}
		w.Run(&lane.Launch{Grid: grid, Bindings: c.Fresh(), Inline: c.Inline}, 0, grid.Count(), &stop)
		for _, f := range w.Findings() {
			if f.Kind == outcome.DataRace {
				return true
			}
		}
	}

	return false
}

// withoutBarrier is a bundle in which barrier n does nothing; false if there are not
// so many.
func withoutBarrier(t *testing.T, bundle []byte, n int) ([]byte, bool) {
	b, err := program.Parse(bundle)
	require.NoError(t, err)
	module := append([]byte(nil), b.SPIRV...)
	for at := 20; at < len(module); {
		word := binary.LittleEndian.Uint32(module[at:])
		if spirv.Opcode(word&0xFFFF) == spirv.OpControlBarrier {
			if n == 0 {
				for end := at + int(word>>16)*4; at < end; at += 4 {
					binary.LittleEndian.PutUint32(module[at:], 1<<16|uint32(spirv.OpNop))
				}
				out, err := program.Encode(module, b.Manifest)
				require.NoError(t, err)
				return out, true
			}
			n--
		}
		at += int(word>>16) * 4
	}

	return nil, false
}
