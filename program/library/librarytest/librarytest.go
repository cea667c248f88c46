// Package librarytest defines the results of the library's kernels: an obvious
// model of each, one element after the other with sums in float64, and inputs for
// it. Tests of every engine run these cases.
//
//	for _, c := range librarytest.Cases("rmsnorm_f32", rng, 20) {
//		got := c.Fresh()
//		… launch c.Kernel over got with c.Inline …
//		require.NoError(t, c.Compare(got))
//	}
//
// Numbers are about 1, as the kernels' tolerances assume.
package librarytest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"capgpu/program"
	"capgpu/program/library"
)

// Case is one launch of a kernel with its expected result.
type Case struct {
	Kernel string
	Name   string // the kernel and its sizes: "matvec_f32 rows=3 cols=5"
	// Bindings are the contents before the launch. A binding may have no bytes.
	Bindings [][]byte
	Inline   []byte
	// Want are the contents after the launch, nil for a binding that the kernel
	// does not write. It is complete: unchanged elements are in it as well.
	Want      [][]byte
	Tolerance program.Tolerance
	Types     []program.Type // of the elements of each binding; "" where mixed
	// Grid is the grid for which Want is right; zero: every grid.
	Grid program.Dim3
	// Traps means that the launch ends in an out-of-range access of binding Trap,
	// and writes nothing.
	Traps bool
	Trap  int
}

// Natural is the grid to launch: Grid, or the natural one.
func (c *Case) Natural() program.Dim3 {
	if c.Grid != (program.Dim3{}) {
		return c.Grid
	}
	m := manifest(c.Kernel)
	info := program.Info{Bindings: m.Bindings, Block: Block(c.Kernel)}
	if m.Grid != nil {
		info.Grid = *m.Grid
	}
	sizes := make([]uint64, len(c.Bindings))
	for i, b := range c.Bindings {
		sizes[i] = uint64(len(b))
	}
	grid, _ := info.NaturalGrid(sizes)
	return grid
}

// Block is the kernel's workgroup.
func Block(kernel string) program.Dim3 {
	size := [3]uint32{1, 1, 1}
	copy(size[:], manifest(kernel).Block)
	return program.Dim3{X: size[0], Y: size[1], Z: size[2]}
}

// Fresh is a copy of the bindings, to launch over.
func (c *Case) Fresh() [][]byte {
	out := make([][]byte, len(c.Bindings))
	for i, b := range c.Bindings {
		out[i] = bytes.Clone(b)
	}
	return out
}

// Compare returns how got differs from the expected result.
func (c *Case) Compare(got [][]byte) error {
	if len(got) != len(c.Bindings) {
		return fmt.Errorf("%s: %d bindings, not %d", c.Name, len(got), len(c.Bindings))
	}
	for i, was := range c.Bindings {
		var err error
		if want := c.Want[i]; want == nil {
			err = compare(got[i], was, "u8", program.Tolerance{})
		} else {
			err = compare(got[i], want, c.Types[i], c.Tolerance)
		}
		if err != nil {
			return fmt.Errorf("%s: binding %d (%s): %w", c.Name, i, manifest(c.Kernel).Bindings[i].Name, err)
		}
	}
	return nil
}

func compare(got, want []byte, t program.Type, tolerance program.Tolerance) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d bytes, not %d", len(got), len(want))
	}
	if bytes.Equal(got, want) {
		return nil
	}

	if t != "f32" {
		for i := range got {
			if got[i] != want[i] {
				return fmt.Errorf("byte %d (word %d) is %#x, not %#x", i, i/4, got[i], want[i])
			}
		}
	}

	g, w := floats(got), floats(want)
	for i := range g {
		if !near(g[i], w[i], tolerance) {
			return fmt.Errorf("element %d of %d is %v (%#x), not %v (%#x)", i, len(g),
				g[i], math.Float32bits(g[i]), w[i], math.Float32bits(w[i]))
		}
	}

	return nil
}

// near is equality within the tolerance. Any NaN equals another.
func near(got, want float32, t program.Tolerance) bool {
	g, w := float64(got), float64(want)
	switch {
	case math.IsNaN(g) || math.IsNaN(w):
		return math.IsNaN(g) && math.IsNaN(w)
	case math.Float32bits(got) == math.Float32bits(want):
		return true
	case math.IsInf(g, 0) || math.IsInf(w, 0):
		return false
	}
	return t != (program.Tolerance{}) && math.Abs(g-w) <= t.Abs+t.Rel*math.Abs(w)
}

// model makes cases of one kernel.
type model struct {
	names []string   // of the sizes
	edges [][]uint32 // sizes worth a case
	// sizes draws others.
	sizes func(r *rand.Rand) []uint32
	// fill makes the bindings, then the inline block, from sizes, and the expected
	// results.
	fill func(r *rand.Rand, size []uint32, c *Case)
}

// Cases are n cases of a kernel: edge cases first, then random ones. spin and trap
// have none.
func Cases(kernel string, r *rand.Rand, n int) []Case {
	m, ok := models[kernel]
	if !ok {
		return nil
	}
	cases := make([]Case, n)
	for i := range cases {
		var size []uint32
		if i < len(m.edges) {
			size = m.edges[i]
		} else {
			size = m.sizes(r)
		}
		cases[i] = m.make(r, kernel, size)
	}
	return cases
}

// Edges is the number of Cases that are edge cases.
func Edges(kernel string) int { return len(models[kernel].edges) }

// Sized is a case of a kernel with the caller's sizes, in the order of the case's
// name.
func Sized(kernel string, r *rand.Rand, size ...uint32) Case {
	return models[kernel].make(r, kernel, size)
}

func (m model) make(r *rand.Rand, kernel string, size []uint32) Case {
	c := blank(kernel)
	for i, name := range m.names {
		c.Name += fmt.Sprintf(" %s=%d", name, size[i])
	}
	m.fill(r, size, &c)
	return c
}

// blank is a case without contents.
func blank(kernel string) Case {
	m := manifest(kernel)
	c := Case{Kernel: kernel, Name: kernel, Want: make([][]byte, len(m.Bindings))}
	if m.Tolerance != nil {
		c.Tolerance = *m.Tolerance
	}
	for _, b := range m.Bindings {
		c.Types = append(c.Types, b.Type)
	}
	return c
}

func manifest(kernel string) *program.Manifest {
	data, ok := library.Bundle(kernel)
	if !ok {
		return &program.Manifest{}
	}
	b, err := program.Parse(data)
	if err != nil {
		return &program.Manifest{}
	}
	return b.Manifest
}

// inline makes an inline block of uint32, lists of them, and float32.
func inline(values ...any) []byte {
	var out []byte
	for _, v := range values {
		switch v := v.(type) {
		case uint32:
			out = binary.LittleEndian.AppendUint32(out, v)
		case []uint32:
			out = append(out, raw(v)...)
		case float32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

// raw and floats, words turn elements into bytes and back.
func raw[T uint32 | float32](list []T) []byte {
	out := make([]byte, 0, 4*len(list))
	for _, v := range list {
		switch v := any(v).(type) {
		case uint32:
			out = binary.LittleEndian.AppendUint32(out, v)
		case float32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

func words(data []byte) []uint32 {
	out := make([]uint32, len(data)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return out
}

func floats(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}
