package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"

	"capgpu/program"
	"capgpu/program/library"
	"capgpu/program/native"
)

const (
	matvecFlops = 2.0 * side2048 * side2048
	smallFlops  = 2.0 * side288 * side288
	matmulFlops = 2.0 * side512 * side512 * side512
)

// q8 are n blocks of q8_0, with scales of about 2^-7.
func q8(n int) []byte {
	r := rand.New(rand.NewPCG(2, uint64(n)))
	var out []byte
	for range n {
		out = binary.LittleEndian.AppendUint16(out, 0x2000|uint16(r.IntN(1<<10)))
		for range 32 {
			out = append(out, byte(r.Uint32()))
		}
	}
	return out
}

// body runs a native body's call, as a whole in this thread.
func body(name string, bindings [][]byte, inline []byte) (side, error) {
	digest, _ := library.Digest(name)
	b, ok := native.Lookup(digest)
	if !ok {
		return nil, fmt.Errorf("no native body of %s", name)
	}

	call := &native.Call{
		Grid:     program.Dim3{X: 1, Y: 1, Z: 1},
		Block:    program.Dim3{X: 1, Y: 1, Z: 1},
		Bindings: bindings,
		Inline:   inline,
	}

	if _, ok := b.Items(call); !ok {
		return nil, fmt.Errorf("the native body of %s does not do this call", name)
	}

	return here(func() {
		n, _ := b.Items(call)
		b.Run(call, 0, n)
	}), nil
}

// nativeFigures measures the bodies against C.
func nativeFigures(r *report, mem *memory, pairs int) error {
	bindings, inline := mem.matvec(side2048)
	matvec, err := body("matvec_f32", bindings, inline)
	if err != nil {
		return err
	}

	blocks := q8(side2048 * side2048 / 32)
	quantised, err := body("matvec_q8_0", [][]byte{blocks, mem.x, mem.y}, inline)
	if err != nil {
		return err
	}

	bindings, inline = mem.matvec(side288)
	small, err := body("matvec_f32", bindings, inline)
	if err != nil {
		return err
	}

	bindings, inline = mem.matmul()
	matmul, err := body("matmul_f32", bindings, inline)
	if err != nil {
		return err
	}

	gflops := func(flops float64, i int) func(t []float64) float64 {
		return func(t []float64) float64 { return flops / t[i] }
	}

	alone := alternate(pairs/4, matvec, quantised, matmul, small)
	r.add(figure("native matvec_f32 2048x2048", "GFLOP/s", alone, gflops(matvecFlops, 0)))
	r.add(figure("native matvec_q8_0 2048x2048", "GFLOP/s", alone, gflops(matvecFlops, 1)))
	r.add(figure("native matvec_f32 288x288", "GFLOP/s", alone, gflops(smallFlops, 3)))
	r.add(figure("native matmul_f32 512x512x512", "GFLOP/s", alone, gflops(matmulFlops, 2)))
	if _, err := exec.LookPath("gcc"); err != nil {
		r.skip("gcc is not installed (Debian: apt-get install gcc): nothing is compared with C")
		return nil
	}

	dir, err := os.MkdirTemp("", "bench-kernels-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	for _, variant := range []struct {
		name  string
		flags []string
		goals bool
	}{
		{"C -O3 -march=native", nil, false},
		{"C -O3 -march=native -ffast-math", []string{"-ffast-math"}, true},
	} {
		c, err := startC(mem, dir, fmt.Sprint("loops", len(variant.flags)), variant.flags...)
		if err != nil {
			return err
		}

		compare := func(name, loop string, flops float64, ours side, rounds int, goal float64, short string) {
			t := alternate(rounds, ours, c.loop(loop))
			r.add(figure(variant.name+": "+loop, "GFLOP/s", t, gflops(flops, 1)))
			f := figure("  native "+name+" / "+loop, "of C", t, func(t []float64) float64 { return t[1] / t[0] })
			if variant.goals {
				f.Goal, f.Short = goal, short
			}
			r.add(f)
		}

		compare("matvec_f32", "matvec", matvecFlops, matvec, pairs, 0.9, "native matvec")
		compare("matvec_f32", "small", smallFlops, small, pairs/4, 0, "")
		compare("matmul_f32", "ikj", matmulFlops, matmul, pairs/4, 0, "")
		compare("matmul_f32", "blocked", matmulFlops, matmul, pairs, 0.25, "native matmul")
		c.Close()
	}

	return nil
}
