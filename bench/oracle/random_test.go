package oracle_test

import (
	"fmt"
	"os"
	"path/filepath"
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

// options gives each seed its kind of kernel.
func options(seed uint64, d vulkan.Device) kernelgen.Options {
	switch seed % 6 {
	case 1:
		return kernelgen.Options{Subgroup: true}
	case 2:
		return kernelgen.Options{Wide: true}
	case 3:
		return kernelgen.Options{Narrow: true}
	case 4:
		const shuffles = vulkan.SubgroupShuffle | vulkan.SubgroupShuffleRelative
		if d.SubgroupOps&shuffles == shuffles {
			return kernelgen.Options{Subgroup: true, Shuffle: true}
		}
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
// always the same, unless CAPGPU_ORACLE_FROM says where to begin;
// CAPGPU_ORACLE_KERNELS is how many. Kernels that differ are kept in the folder
// CAPGPU_ORACLE_KEEP, if set.
func TestRandomKernels(t *testing.T) {
	if err := glsl.Available(); err != nil {
		t.Skip(err)
	}
	drivers, err := oracle.Drivers()
	if len(drivers) == 0 {
		t.Skip(err)
	}
	from, count := number(t, "CAPGPU_ORACLE_FROM", 0), number(t, "CAPGPU_ORACLE_KERNELS", 150)
	var next, compared, skipped atomic.Uint64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			e, err := oracle.OpenLavapipe(drivers[number(t, "CAPGPU_ORACLE_DRIVER", 0)])
			if err != nil {
				t.Error(err)
				return
			}
			defer e.Close()
			for !t.Failed() || testing.Verbose() {
				n := next.Add(1) - 1
				if n >= count {
					return
				}
				k := kernelgen.Generate(from+n, options(from+n, e.Device()))
				var runs []oracle.Run
				for _, v := range oracle.Variants {
					runs = append(runs, oracle.Run{Variant: v, Engine: e})
				}
				d, err := oracle.Check(k, runs)
				switch {
				case err != nil:
					skipped.Add(1)
					t.Log(err)
				case d != nil:
					report(t, d)
				default:
					compared.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("oracle: %d kernels compared, %d not", compared.Load(), skipped.Load())
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
