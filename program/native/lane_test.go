package native

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
	"capgpu/program/verify"
)

// The bodies against the programs themselves, as the lane engine executes them.

// engine is one program on the lane engine.
type engine struct {
	info *program.Info
	w    *lane.Worker
}

func engineOf(t *testing.T, name string) *engine {
	t.Helper()
	bundle, ok := library.Bundle(name)
	require.True(t, ok)
	p, err := verify.Admit(bundle, verify.DefaultLimits())
	require.NoError(t, err)
	k, err := lane.Compile(p, lane.Options{})
	require.NoError(t, err)
	return &engine{&p.Info, k.NewWorker()}
}

// run launches a call and gives its trap.
func (e *engine) run(c *Call) outcome.Trap {
	l := &lane.Launch{Grid: c.Grid, Bindings: c.Bindings, Inline: c.Inline}
	return e.w.Run(l, 0, uint64(c.Grid.X)*uint64(c.Grid.Y)*uint64(c.Grid.Z), nil).Trap
}

// exact are the programs with bodies that give exactly the program's bits.
var exact = []string{"argmax_f32", "copy", "embed_bf16", "embed_f16", "embed_f32", "embed_i8", "embed_q4_0", "embed_q8_0", "fill_u32",
	"embed_iq4_nl", "embed_iq4_xs", "embed_mxfp4", "embed_q2_k", "embed_q3_k", "embed_q4_1", "embed_q4_k", "embed_q5_0", "embed_q5_1", "embed_q5_k", "embed_q6_k",
	"next_token_f32", "rope_cache_f32", "rope_f32", "saxpy_f32", "topk_f32", "vecadd_f32",
}

// grids are launches of a case: the natural one, and others if every grid is
// allowed.
func grids(r *rand.Rand, c *librarytest.Case) []program.Dim3 {
	all := []program.Dim3{c.Natural()}
	if c.Grid == (program.Dim3{}) && c.Kernel != "reduce_f32" {
		all = append(all, program.Dim3{X: 1 + r.Uint32N(5), Y: 1 + r.Uint32N(2), Z: 1 + r.Uint32N(2)})
	}
	return all
}

func TestBodiesMatchTheLaneEngine(t *testing.T) {
	cases := drawn()
	r := rand.New(rand.NewPCG(31, 32))
	for _, name := range names {
		e, b := engineOf(t, name), bodies[name]
		for _, c := range cases[name] {
			if slices.Contains(exact, name) {
				c.Tolerance = program.Tolerance{}
			}
			for _, grid := range grids(r, &c) {
				slow, fast := callOf(&c, c.Fresh()), callOf(&c, c.Fresh())
				slow.Grid, fast.Grid = grid, grid
				n, ok := b.Items(fast)
				if !ok {
					continue
				}
				require.True(t, b.Run(fast, 0, n), c.Name)
				require.Zero(t, e.run(slow), c.Name)
				same(t, &c, slow.Bindings, fast.Bindings)
			}
		}
	}
}

// same compares the written bindings with those of the lane engine.
func same(t *testing.T, c *librarytest.Case, want, got [][]byte) {
	t.Helper()
	lanes := *c
	lanes.Want = make([][]byte, len(want))
	for i := range want {
		if c.Want[i] != nil {
			lanes.Want[i] = want[i]
		}
	}
	require.NoError(t, lanes.Compare(got))
}

// TestInPlaceMatchesTheLaneEngine: y is x, for the bodies that allow it.
func TestInPlaceMatchesTheLaneEngine(t *testing.T) {
	for _, name := range inPlace {
		e, b := engineOf(t, name), bodies[name]
		for _, c := range drawn()[name] {
			last := len(c.Bindings) - 1
			slow, fast := callOf(&c, c.Fresh()), callOf(&c, c.Fresh())
			slow.Bindings[last], fast.Bindings[last] = slow.Bindings[0], fast.Bindings[0]
			n, ok := b.Items(fast)
			if !ok {
				continue
			}
			require.True(t, b.Run(fast, 0, n), c.Name)
			require.Zero(t, e.run(slow), c.Name)
			// This case has only one binding, the written one.
			only := librarytest.Case{
				Kernel: name, Name: c.Name, Tolerance: c.Tolerance, Types: c.Types[last:],
				Bindings: fast.Bindings[:1], Want: slow.Bindings[:1],
			}
			require.NoError(t, only.Compare(fast.Bindings[:1]))
		}
	}
}

// TestAnyShape launches random sizes, most of which do not fit: for every call that
// a body does, the program runs without a trap and with the same result. A longer
// run has CAPGPU_KERNEL_CASES of each kernel.
func TestAnyShape(t *testing.T) {
	calls := 120
	if n, err := strconv.Atoi(os.Getenv("CAPGPU_KERNEL_CASES")); err == nil {
		calls = max(calls, n)
	}

	for _, name := range names {
		e, b := engineOf(t, name), bodies[name]
		r := rand.New(rand.NewPCG(33, 34))
		did := 0
		for range calls {
			c, call := anyCall(r, name, e.info)
			n, ok := b.Items(call)
			if !ok {
				continue
			}

			require.Positive(t, b.Grain(call), "%s %v", c.Name, call.Inline)
			if b.Nanos != nil {
				b.Nanos(call)
			}

			before := c.Fresh()
			if !b.Run(call, 0, n) {
				continue
			}

			did++
			slow := &Call{Grid: call.Grid, Block: call.Block, Bindings: before, Inline: call.Inline}
			require.Zero(t, e.run(slow), "%s %v: the program traps", c.Name, call.Inline)
			same(t, c, before, call.Bindings)
		}

		require.Positive(t, did, name)
	}
}

// odds are infinities, a NaN and zeros, but no numbers that overflow in one order
// of a sum and not in another.
var odds = []uint32{0x7f800000, 0xff800000, 0x7fc00000, 0, 0x80000000}

// anyCall draws a call of a program: sizes that are mostly small, sometimes equal,
// sometimes huge. A quarter of them have values that are not ordinary.
func anyCall(r *rand.Rand, name string, info *program.Info) (*librarytest.Case, *Call) {
	size := func() uint32 {
		switch r.IntN(12) {
		case 0:
			return 0
		case 1:
			return r.Uint32()
		case 2, 3:
			return 32 * (1 + r.Uint32N(3))
		case 4:
			return 1 << r.Uint32N(32)
		}
		return 1 + r.Uint32N(6)
	}

	c := &librarytest.Case{Kernel: name, Name: name, Tolerance: info.Tolerance}
	for _, f := range info.Inline {
		v := size()
		if f.Type == "f32" {
			v = math.Float32bits(r.Float32())
		}
		c.Inline = binary.LittleEndian.AppendUint32(c.Inline, v)
	}

	odd := r.IntN(4) == 0
	for _, binding := range info.Bindings {
		n := 4 * r.IntN(200)
		if r.IntN(8) == 0 {
			n = 0
		}
		if binding.Type == "" {
			n = 34*r.IntN(12) + 2*r.IntN(2)
		}

		data := make([]byte, n)
		for at := 0; at+4 <= n; at += 4 {
			v := math.Float32bits(2*r.Float32() - 1)
			if odd && r.IntN(16) == 0 {
				v = odds[r.IntN(len(odds))]
			}
			if binding.Name == "tokens" {
				v = r.Uint32N(6)
			}
			binary.LittleEndian.PutUint32(data[at:], v)
		}

		for at := 0; at+2 <= n && (binding.Type == "f16" || binding.Type == "u16"); at += 2 { // below 2
			data[at+1] &= 0xbf
		}

		for at := 0; at+18 <= n && strings.HasSuffix(name, "_q4_0") && binding.Type == ""; at += 18 {
			binary.LittleEndian.PutUint16(data[at:], 0x2000|uint16(r.IntN(1<<10)))
		}

		for at := 0; at+34 <= n && strings.HasSuffix(name, "_q8_0") && binding.Type == ""; at += 34 {
			binary.LittleEndian.PutUint16(data[at:], 0x2000|uint16(r.IntN(1<<10)))
		}

		c.Bindings = append(c.Bindings, data)
		c.Types = append(c.Types, binding.Type)
		var want []byte
		if binding.Access&program.Write != 0 {
			want = data // replaced by the lane engine's result
		}

		c.Want = append(c.Want, want)
	}

	c.Name = fmt.Sprint(name, " of ", len(c.Bindings), " bindings")
	call := &Call{Grid: program.Dim3{X: 1 + r.Uint32N(3), Y: 1, Z: 1}, Block: info.Block, Bindings: c.Fresh(), Inline: c.Inline}
	return c, call
}
