package lane

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/proctest"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// TestLargePrograms: programs near the limits compile in time in proportion.
func TestLargePrograms(t *testing.T) {
	for name, body := range map[string]func(b *spirvtest.Builder, u, x spirv.ID, lane spirv.ID){
		"a long block": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			for range 9000 {
				b.Store(x, b.Op(spirv.OpIAdd, u, b.Op(spirv.OpIMul, u, b.Load(u, x), lane), b.U32(3)))
			}
		},
		"many selections": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			for k := range 3000 {
				c := b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, x), b.U32(uint32(k)))
				b.If(c, func() bool { b.Store(x, b.Op(spirv.OpIAdd, u, b.Load(u, x), lane)); return true }, nil)
			}
		},
		"many loops": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			i := b.Local(u)
			for range 1500 {
				b.Store(i, b.U32(0))
				b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), lane) },
					func(spirv.ID, spirv.ID) bool { b.Store(x, b.Op(spirv.OpIAdd, u, b.Load(u, x), lane)); return true },
					func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
			}
		},
		"many variables in a loop": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			i := b.Local(u)
			var vars []spirv.ID
			for range 800 {
				vars = append(vars, b.Local(u))
			}
			b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), lane) },
				func(spirv.ID, spirv.ID) bool {
					for k := range vars {
						b.Store(vars[k], b.Op(spirv.OpIAdd, u, b.Load(u, vars[(k+1)%len(vars)]), lane))
					}
					return true
				},
				func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
			b.Store(x, b.Load(u, vars[5]))
		},
		"deep nesting": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			var nest func(depth int)
			nest = func(depth int) {
				if depth == 60 {
					b.Store(x, b.Op(spirv.OpIAdd, u, b.Load(u, x), lane))
					return
				}
				i := b.Local(u)
				b.Store(i, b.U32(0))
				b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), b.Load(u, x)) },
					func(spirv.ID, spirv.ID) bool { nest(depth + 1); return true },
					func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
			}
			for range 20 {
				nest(0)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := spirvtest.New()
			u := b.Uint(32)
			out := b.Buffer(0, u, 4)
			index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
			main := b.Func(b.Void())
			x := b.Local(u)
			lane := b.Load(u, index)
			body(b, u, x, lane)
			b.Store(b.Access(spirv.StorageClassStorageBuffer, u, out, b.U32(0), lane), b.Load(u, x))
			b.Return()
			b.End()
			b.Compute(main, "main", 16, 1, 1)
			p := describe(t, b.Bytes())
			var k *Kernel
			var err error
			took := proctest.CPU(func() { k, err = Compile(p, Options{}) })
			require.NoError(t, err)
			t.Logf("%d bytes: %v, a worker has %d bytes", len(b.Bytes()), took, k.MemoryBytes())
			require.Less(t, took, 5*time.Second)
		})
	}
}

// TestMuchWork: small modules that cause much work are refused before they have.
func TestMuchWork(t *testing.T) {
	array := func(b *spirvtest.Builder) spirv.ID { return b.Array(b.Uint(32), b.U32(1024), 0) }
	for name, make := range map[string]func(b *spirvtest.Builder) spirv.ID{
		"calls": func(b *spirvtest.Builder) spirv.ID {
			f := b.Func(b.Void())
			b.Local(array(b))
			b.Return()
			b.End()
			for range 5 {
				g := b.Func(b.Void())
				for range 8 {
					b.Call(b.Void(), f)
				}
				b.Return()
				b.End()
				f = g
			}
			return f
		},
		"blocks": func(b *spirvtest.Builder) spirv.ID {
			f := b.Func(b.Void())
			x := b.Local(array(b))
			for range 12000 {
				label := b.ID()
				b.Branch(label)
				b.Begin(label)
			}
			for range 3 {
				b.Load(array(b), x)
			}
			b.Return()
			b.End()
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := spirvtest.New()
			b.Compute(make(b), "main", 1, 1, 1)
			p := describe(t, b.Bytes())
			var err error
			took := proctest.CPU(func() { _, err = Compile(p, Options{}) })
			var r *program.Refusal
			require.ErrorAs(t, err, &r)
			require.Equal(t, "SPV-2900", r.Code)
			require.Less(t, took, 5*time.Second)

			var stop atomic.Uint32
			stop.Store(1)
			_, err = Compile(p, Options{Stop: &stop})
			require.ErrorIs(t, err, ErrStopped)
		})
	}
}

// TestChainOfPhis: phis that become known one after the other, backwards.
func TestChainOfPhis(t *testing.T) {
	const n = 5000
	b := spirvtest.New()
	u := b.Uint(32)
	out := b.Buffer(0, u, 4)
	index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
	main := b.Func(b.Void())
	lane := b.Load(u, index)
	entry, head, body, cont, merge := b.ID(), b.ID(), b.ID(), b.ID(), b.ID()
	b.Branch(entry)
	b.Begin(entry)
	b.Branch(head)
	b.Begin(head)
	phis := make([]spirv.ID, n+1)
	for k := range phis {
		phis[k] = b.ID()
	}

	for k, p := range phis {
		next := b.U32(5)
		if k < n {
			next = phis[k+1]
		}
		b.Do(spirv.OpPhi, u, p, b.U32(5), entry, next, cont)
	}

	more := b.Op(spirv.OpULessThan, b.Bool(), phis[0], lane)
	b.LoopMerge(merge, cont)
	b.BranchIf(more, body, merge)
	b.Begin(body)
	b.Branch(cont)
	b.Begin(cont)
	b.Branch(head)
	b.Begin(merge)
	b.Store(b.Access(spirv.StorageClassStorageBuffer, u, out, b.U32(0), lane), phis[0])
	b.Return()
	b.End()
	b.Compute(main, "main", 4, 1, 1)
	p := describe(t, b.Bytes())
	var k *Kernel
	var err error
	took := proctest.CPU(func() { k, err = Compile(p, Options{}) })
	require.NoError(t, err)
	require.Less(t, took, 5*time.Second)
	a := make([]byte, 16)
	require.Equal(t, Result{}, k.NewWorker().Run(&Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{a}}, 0, 1, nil))
	require.Equal(t, []uint32{5, 5, 5, 5}, asWords(a))
}

// TestLargeTypes: a block may have a fixed part of up to 1 GiB, in a buffer that has
// less, and arrays with more elements than a buffer has bytes.
func TestLargeTypes(t *testing.T) {
	b := spirvtest.New()
	u := b.Uint(32)
	b.Capability(spirv.CapabilityInt8, spirv.CapabilityStorageBuffer8BitAccess)
	b.Extension("SPV_KHR_8bit_storage")
	row := b.Array(u, b.U32(1<<26), 4)
	words := b.Struct(u, b.Array(row, b.U32(3), 1<<28), u)
	for i, off := range []uint32{0, 4, 4 + 3<<28} {
		b.MemberDecorate(words, i, spirv.DecorationOffset, off)
	}
	b.Decorate(words, spirv.DecorationBlock)
	a := b.BufferOf(0, words)
	c := b.BufferOf(1, b.Block([]uint32{0}, b.Array(b.Uint(8), b.U32(1<<30), 1)))
	far := b.BufferOf(2, b.Block([]uint32{0}, b.RuntimeArray(b.Block([]uint32{1<<29 - 4}, u), 1<<29)))
	index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
	storage := spirv.StorageClassStorageBuffer

	main := b.Func(b.Void())
	lane := b.Load(u, index)
	at := func(i spirv.ID) spirv.ID { return b.Load(u, b.Access(storage, u, a, b.U32(1), b.U32(0), i)) }
	first, shift := at(b.U32(0)), at(b.Op(spirv.OpIAdd, u, lane, b.U32(1)))
	v := b.Op(spirv.OpUConvert, b.Uint(8), b.Op(spirv.OpIAdd, u, b.Load(u, b.Access(storage, u, a, b.U32(1), first, shift)), lane))
	b.Store(b.Access(storage, b.Uint(8), c, b.U32(0), b.Op(spirv.OpIAdd, u, b.Op(spirv.OpIMul, u, lane, at(b.U32(5))), shift)), v)
	b.If(b.Op(spirv.OpIEqual, b.Bool(), at(b.U32(6)), lane), func() bool {
		b.Store(b.Access(storage, u, far, b.U32(0), at(b.U32(7)), b.U32(0)), lane)
		return true
	}, nil)
	b.Return()
	b.End()
	b.Compute(main, "main", 4, 1, 1)
	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	k, err := Compile(p, Options{})
	require.NoError(t, err)

	run := func(words ...uint32) (c []byte, r Result) {
		c = make([]byte, 64)
		l := &Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{Words(append([]uint32{9}, words...)...), c, make([]byte, 64)}}
		return c, k.NewWorker().Run(l, 0, 1, nil)
	}

	c1, r := run(0, 7, 7, 7, 7, 8, 99, 0)
	require.Equal(t, Result{}, r)
	for lane := range 4 {
		require.Equal(t, byte(lane), c1[8*lane+7]) // the word 7 after the first is 0
	}

	oob := func(binding uint16, off uint64, lane uint32) Result {
		return Result{Trap: outcome.Trap{Kind: outcome.OutOfBounds, Binding: binding, Offset: off, Lane: lane}}
	}
	_, r = run(2, 7, 7, 7, 7, 8, 99, 0)
	require.Equal(t, oob(0, 4+2<<28+4*7, 0), r)
	_, r = run(3, 7, 7, 7, 7, 8, 99, 0)
	require.Equal(t, oob(0, 4+3<<28+4*7, 0), r)
	_, r = run(0, 7, 7, 7, 7, 1<<28, 99, 0)
	require.Equal(t, oob(1, 1<<28+7, 1), r)
	_, r = run(0, 7, 7, 7, 7, 1<<31, 99, 0) // twice this is 0 in 32 bits
	require.Equal(t, oob(1, 1<<31+7, 1), r)
	_, r = run(0, 7, 7, 7, 7, 8, 2, 0)
	require.Equal(t, oob(2, 1<<29-4, 2), r)
	_, r = run(0, 7, 7, 7, 7, 8, 2, 1<<32-1)
	require.Equal(t, oob(2, (1<<32-1)<<29+1<<29-4, 2), r)
}
