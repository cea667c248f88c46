package oracle_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/bench/glsl"
	"capgpu/bench/kernelgen"
	"capgpu/bench/oracle"
	"capgpu/bench/vulkan"
)

const shuffles = vulkan.SubgroupShuffle | vulkan.SubgroupShuffleRelative

// options assigns a kind of kernel to each seed.
func options(seed uint64) kernelgen.Options {
	switch seed % 12 {
	case 1, 7:
		return kernelgen.Options{Subgroup: true}
	case 2, 8:
		return kernelgen.Options{Wide: true}
	case 3, 9:
		return kernelgen.Options{Narrow: true}
	case 4:
		return kernelgen.Options{Subgroup: true, Shuffle: true}
	case 5:
		return kernelgen.Options{Survey: int(seed/12) + 1, Wide: true}
	case 10:
		return kernelgen.Options{Survey: int(seed/12) + 1, Subgroup: true, Shuffle: true}
	}
	return kernelgen.Options{}
}

func number(t *testing.T, env string, otherwise uint64) uint64 {
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 0, 64)
	require.NoError(t, err, env)
	return n
}

// TestRandomKernels compares random kernels between all engines. The seeds are
// always the same, unless CAPGPU_ORACLE_FROM sets the first; CAPGPU_ORACLE_KERNELS
// is their number, CAPGPU_ORACLE_SECONDS the time limit. With CAPGPU_ORACLE_LONG
// every kernel runs in every mode. Kernels that differ are kept in the folder
// CAPGPU_ORACLE_KEEP, if set.
func TestRandomKernels(t *testing.T) {
	if err := glsl.Available(); err != nil {
		t.Skip(err)
	}

	drivers, missing := oracle.Drivers()
	if len(drivers) == 0 {
		t.Logf("lane is compared with itself only: %v", missing)
	}

	poclToo := hasPoCL(t)
	from, count := number(t, "CAPGPU_ORACLE_FROM", 0), number(t, "CAPGPU_ORACLE_KERNELS", 150)
	c := comparison{long: os.Getenv("CAPGPU_ORACLE_LONG") != ""}
	end := time.Now().Add(time.Duration(number(t, "CAPGPU_ORACLE_SECONDS", 45)) * time.Second)
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var pipes []*oracle.Lavapipe
			for _, d := range drivers {
				e, err := oracle.OpenLavapipe(d)
				if err != nil {
					t.Error(err)
					return
				}
				defer e.Close()
				pipes = append(pipes, e)
			}

			var pocl *oracle.PoCL
			if poclToo {
				e, err := oracle.OpenPoCL()
				if err != nil {
					t.Error(err)
					return
				}
				defer e.Close()
				pocl = e
			}

			for n := next.Add(1) - 1; n < count && c.differ.Load() < 10 && time.Now().Before(end); n = next.Add(1) - 1 {
				c.kernel(t, from+n, pipes, pocl)
			}
		})
	}

	wg.Wait()
	t.Logf("oracle: %d kernels compared (%d launches, %d of them by PoCL), %d differ; %d faults of the first lavapipe, %d beyond the limits, %d that do not compile",
		c.same.Load(), c.runs.Load(), c.pocl.Load(), c.differ.Load(), c.excused.Load(), c.large.Load(), c.invalid.Load())
}

// comparison counts the compared kernels.
type comparison struct {
	long                                              bool
	runs, pocl, same, differ, excused, large, invalid atomic.Uint64
}

func (c *comparison) kernel(t *testing.T, seed uint64, pipes []*oracle.Lavapipe, pocl *oracle.PoCL) {
	plain, optimised := oracle.Variants[0], oracle.Variants[1]
	o := options(seed)
	if o.Shuffle { // Mesa 22.3 has none
		pipes = slices.Clone(pipes)
		pipes = slices.DeleteFunc(pipes, func(e *oracle.Lavapipe) bool { return e.Device().SubgroupOps&shuffles != shuffles })
	}

	var runs []oracle.Run
	for i, e := range pipes {
		if i == 0 {
			runs = append(runs, oracle.Run{Variant: plain, Engine: e})
		}
		if i == 0 && seed%8 == 0 || i > 0 && c.long {
			runs = append(runs, oracle.Run{Variant: optimised, Engine: e})
		}
	}

	other := 8 // subgroup size
	if !o.Subgroup {
		other = []int{16, 32, 64}[seed%3]
	}

	runs = append(runs,
		oracle.Run{Variant: plain, Engine: &oracle.Lane{SubgroupSize: 8}},
		oracle.Run{Variant: optimised, Engine: &oracle.Lane{SubgroupSize: other, Workers: 2, Cut: 1}},
	)

	if c.long {
		runs = append(runs,
			oracle.Run{Variant: plain, Engine: &oracle.Lane{SubgroupSize: other, Workers: 3, Cut: 2}},
			oracle.Run{Variant: optimised, Engine: &oracle.Lane{SubgroupSize: 8}},
		)
	}

	if c.long || seed%4 == 1 {
		runs = append(runs, oracle.Run{Variant: plain, Engine: &oracle.Lane{SubgroupSize: 8, Check: true}})
	}

	k := kernelgen.Generate(seed, o)
	if _, ok := k.OpenCL(); pocl != nil && ok && (c.long || seed%12 < 4) {
		runs = append(runs, oracle.Run{Variant: plain, Engine: pocl})
	}

	c.check(t, k, runs, pipes)
	if k.BlockFree && (c.long || seed%2 == 0) {
		c.check(t, k.WithBlock(k.OtherBlock()), runs, pipes)
	}
}

// check compares the runs of a kernel. If they differ and there is a second
// lavapipe, it replaces the first: if all agree with it, the first is wrong.
func (c *comparison) check(t *testing.T, k *kernelgen.Kernel, runs []oracle.Run, pipes []*oracle.Lavapipe) {
	d, err := oracle.Check(k, runs)
	if d != nil && len(pipes) > 1 {
		judged, arbiter := pipes[0], pipes[1]
		again := slices.Clone(runs)
		for i := range again {
			if again[i].Engine == oracle.Engine(judged) {
				again[i].Engine = arbiter
			}
		}
		if other, err := oracle.Check(k, again); other == nil && err == nil {
			c.excused.Add(1)
			t.Logf("seed %d: %v; %s agrees with the others", k.Seed, d.Err, arbiter.Name())
			return
		}
	}

	switch {
	case errors.Is(err, oracle.ErrTooLarge):
		c.large.Add(1)
	case err != nil:
		c.invalid.Add(1)
		t.Log(err)
	case d != nil:
		c.differ.Add(1)
		report(t, d)
	default:
		c.same.Add(1)
		c.runs.Add(uint64(len(runs)))
		if _, ok := runs[len(runs)-1].Engine.(*oracle.PoCL); ok {
			c.pocl.Add(1)
		}
	}
}

// hasPoCL reports whether this machine has PoCL, and logs its version or its
// absence; with CAPGPU_ORACLE_POCL it must be there.
func hasPoCL(t *testing.T) bool {
	e, err := oracle.OpenPoCL()
	if err != nil {
		if os.Getenv("CAPGPU_ORACLE_POCL") != "" {
			t.Error(err)
		} else {
			t.Logf("absent: %v; kernels on PoCL: 0 (CAPGPU_ORACLE_POCL=1 installs it)", err)
		}
		return false
	}
	defer e.Close()
	t.Logf("oracle: present: %s", e.Name())
	return true
}

func report(t *testing.T, d *oracle.Disagreement) {
	limit := time.Duration(number(t, "CAPGPU_ORACLE_SHRINK_SECONDS", 30)) * time.Second
	d.Shrink(limit)
	t.Errorf("%s\n%s", d.Err, d)
	if keep := os.Getenv("CAPGPU_ORACLE_KEEP"); keep != "" {
		if err := os.WriteFile(filepath.Join(keep, fmt.Sprintf("seed%d.comp", d.Kernel.Seed)), []byte(d.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}
