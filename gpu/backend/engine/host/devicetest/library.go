package devicetest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
)

// libraryKernels: each kernel of the library has the right results, those of exact kernels
// are the lane engine's, and where that traps so does the device.
func libraryKernels(k *kit) {
	ran, traps, names := 0, 0, library.Names()
	if testing.Short() {
		names = []string{"copy", "embed_q8_0", "fill_u32", "matvec_f32", "reduce_f32", "saxpy_f32", "trap", "vecadd_f32"}
	}
	for _, name := range names {
		if name == "spin" {
			continue // see rounds and stop
		}
		if lacks := k.lacks(name); lacks != "" {
			k.Logf("%s: the device lacks %s", name, lacks)
			continue
		}

		r := rand.New(rand.NewPCG(11, uint64(len(name))))
		for _, c := range append(librarytest.Cases(name, r, 3), librarytest.Traps(name)...) {
			spans := k.bound(c.Bindings)
			e := k.gridOf(name, c.Natural(), c.Inline, spans...)
			onLane, trap := k.onLane(e, c.Bindings)
			result := k.run(e)
			ran++
			if c.Traps {
				traps++
				report := k.isEarly(result, 0, e)
				require.Equal(k, trap.Kind, report.Trap.Kind, c.Name)
				require.Equal(k, trap.Binding, report.Trap.Binding, c.Name)
				require.NoError(k, k.d.Resume())
				continue
			}

			k.isWhole(result, 1)
			got := contents(spans)
			require.NoError(k, c.Compare(got))
			if c.Tolerance == (program.Tolerance{}) {
				for i := range got {
					require.True(k, bytes.Equal(onLane[i], got[i]), "%s: binding %d is not that of the lane engine", c.Name, i)
				}
			}
		}
	}
	k.Logf("%d launches of the library, %d of them trap", ran, traps)
	require.Greater(k, ran, 3*len(names))
}

// lacks names the features that a kernel wants and the device has not.
func (k *kit) lacks(name string) string {
	var missing []string
	for _, f := range k.admitted(name).Info.Features {
		if !slices.Contains(k.about.Features, f) {
			missing = append(missing, string(f))
		}
	}
	return strings.Join(missing, ", ")
}
