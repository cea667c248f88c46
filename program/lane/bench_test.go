package lane

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
	"capgpu/program/verify"
)

// BenchmarkLibrary is one launch of a kernel on one worker. With -benchtime=1x the
// figure is of the first one.
func BenchmarkLibrary(b *testing.B) {
	for _, c := range []struct {
		name  string
		sizes []uint32
		flops float64
	}{
		{"vecadd_f32", []uint32{1 << 20, 1 << 20, 1 << 20}, 1 << 20},
		{"saxpy_f32", []uint32{1 << 20, 1 << 20}, 2 << 20},
		{"reduce_f32", []uint32{1 << 20, 1}, 1 << 20},
		{"matvec_f32", []uint32{2048, 2048}, 2 * 2048 * 2048},
		{"matvec_wg_f32", []uint32{2048, 2048}, 2 * 2048 * 2048},
		{"matvec_q8_0", []uint32{2048, 2048}, 2 * 2048 * 2048},
		{"matmul_f32", []uint32{512, 512, 512}, 2 * 512 * 512 * 512},
		{"matmul_tiled_f32", []uint32{512, 512, 512}, 2 * 512 * 512 * 512},
	} {
		b.Run(fmt.Sprint(c.name, c.sizes), func(b *testing.B) {
			data, _ := library.Bundle(c.name)
			k, err := Compile(admit(b, data), Options{Block: librarytest.Block(c.name)})
			require.NoError(b, err)
			w := k.NewWorker()
			x := librarytest.Sized(c.name, rand.New(rand.NewPCG(1, 2)), c.sizes...)
			grid := x.Natural()
			l := &Launch{Grid: grid, Bindings: x.Fresh(), Inline: x.Inline}
			b.ReportAllocs()
			before := cpuTime()
			for b.Loop() {
				if r := w.Run(l, 0, grid.Count(), nil); r != (Result{}) {
					b.Fatal(r)
				}
			}

			b.ReportMetric(c.flops*float64(b.N)/1e9/b.Elapsed().Seconds(), "GFLOP/s")
			b.ReportMetric(c.flops*float64(b.N)/1e9/(cpuTime()-before).Seconds(), "GFLOP/s-cpu")
		})
	}
}

// cpuTime is the processor time of the process: on a busy machine it is more
// meaningful than elapsed time.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkEmpty(b *testing.B) {
	k, err := Compile(describe(b, glsl(b, "layout(local_size_x=64) in;\nvoid main(){}")), Options{})
	require.NoError(b, err)
	w := k.NewWorker()
	l := &Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}}
	for b.Loop() {
		w.Run(l, 0, 1, nil)
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"vecadd_f32", "matmul_tiled_f32", "attention_f32"} {
		data, _ := library.Bundle(name)
		b.Run(fmt.Sprint(name, "/", len(data)), func(b *testing.B) {
			defer func(before time.Duration) {
				b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			}(cpuTime())
			for b.Loop() {
				p, err := verify.Admit(data, verify.DefaultLimits())
				require.NoError(b, err)
				_, err = Compile(p, Options{})
				require.NoError(b, err)
			}
		})

		b.Run(fmt.Sprint(name, "/", len(data), "/compile"), func(b *testing.B) {
			p, err := verify.Admit(data, verify.DefaultLimits())
			require.NoError(b, err)
			for b.Loop() {
				_, err = Compile(p, Options{})
				require.NoError(b, err)
			}
		})
	}
}
