package oracle

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"capgpu/bench/glsl"
	"capgpu/bench/kernelgen"
	"capgpu/program"
)

// Variant is a way to compile a kernel.
type Variant struct {
	Name     string
	Optimise bool // by spirv-opt -O
}

// Variants are those that random kernels are compared in.
var Variants = []Variant{{"plain", false}, {"optimised", true}}

// compile makes the modules of a kernel in the variants of the runs.
func compile(k *kernelgen.Kernel, runs []Run) (map[string][]byte, error) {
	plain, err := glsl.Compile(k.Source())
	if err != nil {
		return nil, err
	}
	if plain, err = glsl.Exact(plain); err != nil {
		return nil, err
	}

	modules := map[string][]byte{}
	for _, r := range runs {
		if !r.Variant.Optimise {
			modules[r.Variant.Name] = plain
		} else if modules[r.Variant.Name] == nil {
			if modules[r.Variant.Name], err = glsl.Optimise(plain); err != nil {
				return nil, err
			}
		}
	}

	return modules, nil
}

// Prepare is the launch of a kernel's module. Specialisation constants that an
// optimiser has removed are left out.
func Prepare(k *kernelgen.Kernel, module []byte) (*Launch, error) {
	has, err := glsl.SpecIDs(module)
	if err != nil {
		return nil, err
	}

	l := &Launch{
		SPIRV: module, Manifest: &program.Manifest{Name: "random"},
		Grid:  program.Dim3{X: k.Grid[0], Y: k.Grid[1], Z: k.Grid[2]},
		Block: program.Dim3{X: k.Block[0], Y: k.Block[1], Z: k.Block[2]}, BlockFree: k.BlockFree,
		Inline: k.Inline, Bindings: k.Bindings, Kernel: k,
	}

	for _, c := range k.Constants {
		if slices.Contains(has, c.ID) {
			l.Manifest.Constants = append(l.Manifest.Constants, program.Constant{ID: c.ID, Value: uint64(c.Value)})
		}
	}

	return l, nil
}

// randomTolerances are those of random kernels.
var randomTolerances = Tolerances{kernelgen.Approximate: {Abs: kernelgen.Tolerance, Rel: kernelgen.Tolerance}}

// Run is one way to run a kernel.
type Run struct {
	Variant Variant
	Engine  Engine
}

func (r Run) name() string { return r.Engine.Name() + ", " + r.Variant.Name }

// Disagreement is a kernel on which two runs differ, or that one of them cannot
// run.
type Disagreement struct {
	Kernel *kernelgen.Kernel
	A, B   Run
	Err    error
}

// ErrNotCompared means that the compilers make no valid module of a kernel.
var ErrNotCompared = errors.New("the kernel does not compile")

// Check runs a kernel in all ways and compares each with the first. The error is
// ErrNotCompared, ErrTooLarge, or nil.
func Check(k *kernelgen.Kernel, runs []Run) (*Disagreement, error) {
	modules, err := compile(k, runs)
	if err != nil {
		return nil, fmt.Errorf("%w: seed %d: %w", ErrNotCompared, k.Seed, err)
	}

	launches := map[string]*Launch{}
	for name, m := range modules {
		if launches[name], err = Prepare(k, m); err != nil {
			return nil, fmt.Errorf("%w: seed %d, %s: %w", ErrNotCompared, k.Seed, name, err)
		}
	}

	var want [][]byte
	for i, r := range runs {
		got, err := r.Engine.Run(launches[r.Variant.Name])
		if errors.Is(err, ErrTooLarge) {
			return nil, fmt.Errorf("seed %d, %s: %w", k.Seed, r.Variant.Name, err)
		}

		switch {
		case err != nil:
			err = fmt.Errorf("%s: %w", r.name(), err)
		case i == 0:
			want = got
		default:
			err = Compare(runs[0].name(), r.name(), want, got, randomTolerances)
		}

		if err == nil {
			continue
		}

		// glslang makes an invalid module now and then; that is no engine's fault.
		for _, v := range []Variant{runs[0].Variant, r.Variant} {
			if invalid := glsl.Validate(launches[v.Name].SPIRV); invalid != nil {
				return nil, fmt.Errorf("%w: seed %d, %s: %w", ErrNotCompared, k.Seed, v.Name, invalid)
			}
		}

		return &Disagreement{k, runs[0], r, err}, nil
	}

	return nil, nil
}

// Shrink reduces the kernel for as long as there is time and the same two runs
// still disagree in the same way: by different results, or by an error.
func (d *Disagreement) Shrink(limit time.Duration) {
	var isDifference *Difference
	different := errors.As(d.Err, &isDifference)
	runs := []Run{d.A, d.B}
	if d.A == d.B {
		runs = runs[:1]
	}

	d.Kernel.Shrink(limit, func() bool {
		again, err := Check(d.Kernel, runs)
		if err != nil || again == nil {
			return false
		}
		var x *Difference
		return errors.As(again.Err, &x) == different
	})

	if again, err := Check(d.Kernel, runs); err == nil && again != nil {
		d.Err = again.Err
	}
}

// String is the kernel, how to reproduce it, and where the runs differ.
func (d *Disagreement) String() string {
	k := d.Kernel
	return fmt.Sprintf("// seed %d %+v, block %v (free: %v), grid %v, constants %v, %d statements\n// %v\n%s",
		k.Seed, k.Options, k.Block, k.BlockFree, k.Grid, k.Constants, k.Statements(), d.Err, k.Source())
}
