package main

import (
	_ "embed"
	"fmt"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/verify"
)

// A kernel without a statement: glslangValidator --target-env vulkan1.1 empty.comp.
//
//go:embed empty/empty.spv
var empty []byte

// load is a device's work on a bundle before the first launch.
func load(bundle []byte) (*lane.Kernel, error) {
	p, err := verify.Admit(bundle, verify.DefaultLimits())
	if err != nil {
		return nil, err
	}
	return lane.Compile(p, lane.Options{})
}

// launch is a whole launch of a bundle on one worker.
func launch(bundle []byte, groups uint32, bindings [][]byte, inline []byte) (side, error) {
	k, err := load(bundle)
	if err != nil {
		return nil, err
	}
	w := k.NewWorker()
	l := &lane.Launch{Grid: program.Dim3{X: groups, Y: 1, Z: 1}, Bindings: bindings, Inline: inline}
	if r := w.Run(l, 0, uint64(groups), nil); r.Trap.Kind != outcome.NoTrap {
		return nil, fmt.Errorf("the launch trapped: %v", r.Trap)
	}
	return here(func() { w.Run(l, 0, uint64(groups), nil) }), nil
}

// laneFigures measures the lane engine, one worker.
func laneFigures(r *report, mem *memory, pairs int) error {
	matvec, sides := mem.matvec(side2048)
	matmul, sizes := mem.matmul()
	for _, k := range []struct {
		name, short string
		bindings    [][]byte
		inline      []byte
		groups      uint32
		flops, goal float64
	}{
		{"matvec_f32", "lane matvec", matvec, sides, side2048 / 128, matvecFlops, 0.5},
		{"matmul_f32", "lane matmul", matmul, sizes, (side512 / 16) * (side512 / 16), matmulFlops, 2},
	} {
		bundle, ok := library.Bundle(k.name)
		if !ok {
			return fmt.Errorf("the library has no %s", k.name)
		}
		s, err := launch(bundle, k.groups, k.bindings, k.inline)
		if err != nil {
			return err
		}
		f := figure("lane "+k.name, "GFLOP/s", alternate(max(pairs/20, 5), s), func(t []float64) float64 { return k.flops / t[0] })
		f.Short, f.Goal = k.short, k.goal
		r.add(f)
	}

	s, err := launch(empty, 1, nil, nil)
	if err != nil {
		return err
	}

	nanoseconds := func(t []float64) float64 { return t[0] }
	f := figure("lane launch of an empty kernel, 64 lanes", "ns", alternate(pairs/4, s), nanoseconds)
	f.Short, f.Goal, f.Below = "empty launch", 1000, true
	r.add(f)
	return loading(r, pairs)
}

// loading measures the smallest kernel of the library that has 5 KiB.
func loading(r *report, pairs int) error {
	var name string
	var bundle []byte
	for _, n := range library.Names() {
		b, _ := library.Bundle(n)
		if len(b) >= 5<<10 && (bundle == nil || len(b) < len(bundle)) {
			name, bundle = n, b
		}
	}

	if _, err := load(bundle); err != nil {
		return err
	}

	s := here(func() { _, _ = load(bundle) })
	f := figure(fmt.Sprintf("load of %s, %d bytes: parse, admit, compile", name, len(bundle)), "us",
		alternate(pairs/4, s), func(t []float64) float64 { return t[0] / 1000 })

	f.Short, f.Goal, f.Below = "load", 1000, true
	r.add(f)
	return nil
}
