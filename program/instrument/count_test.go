package instrument_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// countingLoop is for (i = start; i < bound; i += step) rounds++, with the three numbers
// from the push constants, as compilers write it with a variable, or with OpPhi.
func countingLoop(signed, phi bool) *spirvtest.Builder {
	b := spirvtest.New()
	u, t, less := b.Uint(32), b.Uint(32), spirv.OpULessThan
	if signed {
		t, less = b.Int(32), spirv.OpSLessThan
	}

	push := b.Push([]uint32{0, 4, 8}, t, t, t)
	out := b.Buffer(0, u, 4)
	main := b.Func(b.Void())
	in := func(k uint32) spirv.ID {
		return b.Load(t, b.Access(spirv.StorageClassPushConstant, t, push, b.U32(k)))
	}
	to := b.Access(spirv.StorageClassStorageBuffer, u, out, b.U32(0), b.U32(0))
	count := func() { b.Store(to, b.Op(spirv.OpIAdd, u, b.Load(u, to), b.U32(1))) }
	one := b.Const(t, 1)

	if phi {
		start, step := in(0), in(2)
		before, head, body, cont, merge := b.ID(), b.ID(), b.ID(), b.ID(), b.ID()
		i, next := b.ID(), b.ID()
		b.Branch(before)
		b.Begin(before)
		b.Branch(head)
		b.Begin(head)
		b.Do(spirv.OpPhi, t, i, start, before, next, cont)
		bound := b.Op(spirv.OpISub, t, b.Op(spirv.OpIAdd, t, in(1), one), one)
		cond := b.Op(less, b.Bool(), i, bound)
		b.LoopMerge(merge, cont)
		b.BranchIf(cond, body, merge)
		b.Begin(body)
		count()
		b.Branch(cont)
		b.Begin(cont)
		b.Do(spirv.OpIAdd, t, next, step, i)
		b.Branch(head)
		b.Begin(merge)
	} else {
		i, bound := b.Local(t), b.Local(t)
		b.Store(i, in(0))
		b.Store(bound, in(1))
		b.Loop(func() spirv.ID { return b.Op(less, b.Bool(), b.Load(t, i), b.Load(t, bound)) },
			func(spirv.ID, spirv.ID) bool { count(); return true },
			func() { b.Store(i, b.Op(spirv.OpIAdd, t, b.Load(t, i), in(2))) })
	}

	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	return b
}

// TestCountedLoops: a loop with a known number of rounds runs whole, or does not
// begin where they are more than the lane may have.
func TestCountedLoops(t *testing.T) {
	const most = 3000
	const minus = 1<<32 - 1
	for _, signed := range []bool{false, true} {
		for _, phi := range []bool{false, true} {
			p := admitted(t, countingLoop(signed, phi))
			i := accepted(t, p)
			ip := again(t, p, i)
			for _, c := range []struct {
				start, bound, step uint32
				unsigned, signed   int // rounds; -1: too many, or no end
			}{
				{0, 0, 1, 0, 0}, {0, 1, 1, 1, 1}, {5, 5, 0, 0, 0}, {7, 5, 3, 0, 0}, {0, 5, 0, -1, -1},
				{0, 10, 3, 4, 4}, {0, 12, 3, 4, 4}, {0, 13, 3, 5, 5}, {100, 2900, 1, 2800, 2800}, {0, 2700, 1, 2700, 2700},
				{0, 3000, 1, -1, -1}, {0, 1 << 30, 1 << 20, 1024, 1024}, {0, 1 << 30, 1, -1, -1}, {0, math.MaxInt32, 1 << 20, 2048, -1},
				{0, minus, 1 << 21, -1, 0}, {minus - 5, minus, 1, 5, 5}, {minus - 5, minus, 7, -1, 1},
				{minus - 9, 10, 1, 0, 20}, {1 << 31, 1<<31 + 9, 2, 5, 5}, {10, 20, minus, -1, -1}, {math.MaxInt32 - 5, math.MaxInt32, 7, 1, -1},
			} {
				want := c.unsigned
				if signed {
					want = c.signed
				}
				l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{make([]byte, 4)}, Inline: ints(c.start, c.bound, c.step)}
				got, err := run(p, i, ip, lane.Options{}, l, instrument.NoEntry, most)
				require.NoError(t, err)
				n := binary.LittleEndian.Uint32(got.bindings[0])
				says := fmt.Sprintf("signed %v, phi %v: %+v", signed, phi, c)
				if want < 0 {
					require.Equal(t, instrument.TooLong, got.report.End, says)
					require.Zero(t, n, says)
					continue
				}
				require.Equal(t, instrument.Whole, got.report.End, says)
				require.Equal(t, uint32(want), n, says)
			}
		}
	}
}

// TestUncountedLoops: a loop with other stores or other ways out is looked at in
// each round, and ends at the bound in its midst.
func TestUncountedLoops(t *testing.T) {
	for name, body := range map[string]func(b *spirvtest.Builder, i, n spirv.ID, brk, cont spirv.ID) bool{
		"stores to i": func(b *spirvtest.Builder, i, _, _, _ spirv.ID) bool { b.Store(i, b.U32(0)); return true },
		"stores to the bound": func(b *spirvtest.Builder, i, n, _, _ spirv.ID) bool {
			b.Store(n, b.Op(spirv.OpIAdd, b.Uint(32), b.Load(b.Uint(32), n), b.U32(1)))
			return true
		},
		"a break": func(b *spirvtest.Builder, i, n, brk, _ spirv.ID) bool {
			b.If(b.Op(spirv.OpIEqual, b.Bool(), b.Load(b.Uint(32), i), b.U32(1<<30)), func() bool { b.Branch(brk); return false }, nil)
			return true
		},
		"a return": func(b *spirvtest.Builder, i, n, brk, _ spirv.ID) bool {
			b.If(b.Op(spirv.OpIEqual, b.Bool(), b.Load(b.Uint(32), i), b.U32(1<<30)), func() bool { b.Return(); return false }, nil)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := spirvtest.New()
			u := b.Uint(32)
			out := b.Buffer(0, u, 4)
			main := b.Func(b.Void())
			to := b.Access(spirv.StorageClassStorageBuffer, u, out, b.U32(0), b.U32(0))
			i, n := b.Local(u), b.Local(u)
			b.Store(n, b.U32(5000))
			b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), b.Load(u, n)) },
				func(brk, cont spirv.ID) bool {
					b.Store(to, b.Op(spirv.OpIAdd, u, b.Load(u, to), b.U32(1)))
					return body(b, i, n, brk, cont)
				},
				func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
			b.Return()
			b.End()
			b.Compute(main, "main", 1, 1, 1)

			got := launch(t, admitted(t, b), program.Dim3{X: 1, Y: 1, Z: 1}, [][]byte{make([]byte, 4)}, nil, instrument.NoEntry, 1024)
			require.Equal(t, instrument.TooLong, got.report.End)
			require.Equal(t, uint32(1023), binary.LittleEndian.Uint32(got.bindings[0]))
		})
	}
}
