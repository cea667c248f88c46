package instrument_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// TestSingleBlockLoops: a loop that is one block, with a store in it, of which the
// phis behind it need the right predecessor.
func TestSingleBlockLoops(t *testing.T) {
	p := newBench(t, 0x10300, func(w *workbench) {
		before, head, merge := w.ID(), w.ID(), w.ID()
		i, next := w.ID(), w.ID()
		w.Branch(before)
		w.Begin(before)
		w.Branch(head)
		w.Begin(head)
		w.Do(spirv.OpPhi, w.u, i, w.U32(0), before, next, head)
		at := w.op(spirv.OpIAdd, w.op(spirv.OpIMul, w.i, w.U32(4)), i)
		w.Store(w.ptrA(at), w.op(spirv.OpIAdd, w.Load(w.u, w.ptrA(at)), w.U32(7)))
		w.Do(spirv.OpIAdd, w.u, next, i, w.U32(1))
		more := w.Op(spirv.OpULessThan, w.boolean, next, w.Load(w.u, w.ptrB(w.i)))
		w.LoopMerge(merge, head)
		w.BranchIf(more, head, merge)
		w.Begin(merge)
		last := w.Op(spirv.OpPhi, w.u, next, head)
		w.Store(w.ptrA(w.op(spirv.OpIAdd, w.op(spirv.OpIMul, w.i, w.U32(4)), w.U32(3))), last)
	})

	accepted(t, p)
	var rounds []uint32
	for k := range uint32(128) {
		rounds = append(rounds, k%4)
	}
	for _, n := range []int{4 * 128, 4*128 - 2, 300} {
		l := &lane.Launch{Grid: program.Dim3{X: 2, Y: 1, Z: 1}, Bindings: [][]byte{counting(n), ints(rounds...), nil}, Inline: ints(1, 1, 2, 3)}
		v, err := difference(t, p, lane.Options{Block: p.Info.Block}, l, 1000)
		require.NoError(t, err)
		require.Equal(t, n != 4*128, v.trapped)
	}

	// One that does not end.
	rounds[70] = 1<<32 - 1
	got := launch(t, p, program.Dim3{X: 2, Y: 1, Z: 1}, [][]byte{counting(512), ints(rounds...), nil}, ints(1, 1, 2, 3), instrument.NoEntry, 1000)
	require.Equal(t, instrument.Trapped, got.report.End, "it leaves the binding first")
}

// TestHeadWithStore: a counted loop with its test, and a store, in its head.
func TestHeadWithStore(t *testing.T) {
	p := newBench(t, 0x10300, func(w *workbench) {
		before, head, body, cont, merge := w.ID(), w.ID(), w.ID(), w.ID(), w.ID()
		i, next, step := w.ID(), w.ID(), w.Local(w.u)
		w.Store(step, w.Load(w.u, w.Access(spirv.StorageClassPushConstant, w.u, w.push, w.U32(0))))
		w.Branch(before)
		w.Begin(before)
		w.Branch(head)
		w.Begin(head)
		w.Do(spirv.OpPhi, w.u, i, w.U32(0), before, next, cont)
		at := w.op(spirv.OpIAdd, w.op(spirv.OpIMul, w.i, w.U32(4)), w.op(spirv.OpBitwiseAnd, i, w.U32(3)))
		w.Store(w.ptrA(at), i)
		length := w.Op(spirv.OpArrayLength, w.u, w.b, 0)
		bound := w.Op(spirv.OpBitcast, w.u, w.Op(spirv.OpBitcast, w.Int(32), w.op(spirv.OpIMul, length, w.U32(2))))
		more := w.Op(spirv.OpULessThan, w.boolean, i, bound)
		w.LoopMerge(merge, cont)
		w.BranchIf(more, body, merge)
		w.Begin(body)
		w.Op(spirv.OpAtomicIAdd, w.u, w.ptrA(w.op(spirv.OpIMul, w.i, w.U32(4))), w.U32(1), w.U32(0), w.U32(100))
		w.Branch(cont)
		w.Begin(cont)
		w.Do(spirv.OpIAdd, w.u, next, i, w.Load(w.u, step))
		w.Branch(head)
		w.Begin(merge)
	})

	accepted(t, p)
	grid := program.Dim3{X: 2, Y: 1, Z: 1}
	for _, n := range []int{512, 301, 0} {
		l := &lane.Launch{Grid: grid, Bindings: [][]byte{counting(n), counting(20), nil}, Inline: ints(3, 1, 2, 3)}
		v, err := difference(t, p, lane.Options{Block: p.Info.Block}, l, 1000)
		require.NoError(t, err)
		require.Equal(t, n != 512, v.trapped)
	}

	// 4,000 rounds are too many, and none of them is done.
	a := counting(512)
	got := launch(t, p, grid, [][]byte{a, counting(2000), nil}, ints(1, 1, 2, 3), instrument.NoEntry, 1000)
	require.Equal(t, instrument.TooLong, got.report.End)
	require.Equal(t, a, got.bindings[0][:len(a)])
}

// TestUnreachableInContinue: from a continue construct no lane can return.
func TestUnreachableInContinue(t *testing.T) {
	b := spirvtest.New()
	u := b.Uint(32)
	main := b.Func(b.Void())
	k := b.Local(u)
	b.Store(k, b.U32(0))
	less := func(n uint32) spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, k), b.U32(n)) }
	b.Loop(func() spirv.ID { return less(9) }, func(_, _ spirv.ID) bool { return true }, func() {
		b.Store(k, b.Op(spirv.OpIAdd, u, b.Load(u, k), b.U32(1)))
		b.If(less(0), func() bool { b.Do(spirv.OpUnreachable); return false }, nil)
	})
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	_, err := instrument.Instrument(admitted(t, b))
	var r *program.Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, instrument.CodeFlow, r.Code)
	require.Equal(t, "OpUnreachable", r.Op)
}

// TestSignedSizes: the workgroup and the length of the dynamic array as signed
// constants, bit fields of vectors, with offsets of other types.
func TestSignedSizes(t *testing.T) {
	b := spirvtest.New()
	b.Capability(spirv.CapabilityInt64)
	u, s := b.Uint(32), b.Int(32)
	v2 := b.Vec(s, 2)
	a := b.Buffer(0, u, 4)
	x := b.Spec(0, s, 1)
	b.Decorate(b.SpecComposite(b.Vec(s, 3), x, b.I32(1), b.I32(1)), spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
	shared := b.Shared(b.Array(u, b.Spec(3, s, 1), 0))
	index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
	main := b.Func(b.Void())
	lane1 := b.Load(u, index)
	at := b.Access(spirv.StorageClassStorageBuffer, u, a, b.U32(0), lane1)
	word := b.Load(u, at)
	i := b.Op(spirv.OpBitcast, s, word)
	vec := b.Op(spirv.OpCompositeConstruct, v2, i, b.I32(-5))
	wide := b.Op(spirv.OpUConvert, b.Uint(64), lane1)
	bits := b.Op(spirv.OpBitFieldInsert, v2, vec, b.Op(spirv.OpCompositeConstruct, v2, b.I32(-1), i), lane1, wide)
	bits = b.Op(spirv.OpBitFieldSExtract, v2, bits, b.Op(spirv.OpBitcast, s, lane1), b.I32(9))
	sum := b.Op(spirv.OpIAdd, s, b.Op(spirv.OpCompositeExtract, s, bits, 0), b.Op(spirv.OpCompositeExtract, s, bits, 1))
	far := b.Access(spirv.StorageClassWorkgroup, u, shared, lane1)
	b.Store(far, b.Op(spirv.OpBitcast, u, sum))
	b.Store(at, b.Load(u, far))
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)

	p := admitted(t, b)
	accepted(t, p)
	for _, size := range []uint32{40, 44} {
		o := lane.Options{Block: program.Dim3{X: size, Y: 1, Z: 1}, SharedBytes: 4 * 40}
		l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{counting(64)}}
		v, err := difference(t, p, o, l, 1000)
		require.NoError(t, err)
		require.Equal(t, size > 40, v.trapped)
		require.Equal(t, v.trapped, v.trapped && v.same)
	}
}

// TestUsesOfBounds: a bound that the loop computes from what does not change is
// known; one that is read from a buffer is not.
func TestUsesOfBounds(t *testing.T) {
	for name, c := range map[string]struct {
		bound   func(w *workbench) spirv.ID
		counted bool
	}{
		"push constant": {func(w *workbench) spirv.ID {
			return w.Load(w.u, w.Access(spirv.StorageClassPushConstant, w.u, w.push, w.U32(1), w.U32(2)))
		}, true},
		"length": {func(w *workbench) spirv.ID { return w.Op(spirv.OpArrayLength, w.u, w.b, 0) }, true},
		"sum": {func(w *workbench) spirv.ID {
			return w.op(spirv.OpISub, w.Op(spirv.OpArrayLength, w.u, w.b, 0), w.U32(1))
		}, true},
		"buffer": {func(w *workbench) spirv.ID { return w.Load(w.u, w.ptrB(w.U32(2000))) }, false},
		"shared": {func(w *workbench) spirv.ID {
			return w.Load(w.u, w.Access(spirv.StorageClassWorkgroup, w.u, w.s, w.U32(0)))
		}, false},
		"dynamic member": {func(w *workbench) spirv.ID {
			return w.Load(w.u, w.Access(spirv.StorageClassPushConstant, w.u, w.push, w.U32(1), w.op(spirv.OpUMod, w.i, w.U32(3))))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newBench(t, 0x10300, func(w *workbench) {
				k := w.Local(w.u)
				w.Store(w.Access(spirv.StorageClassWorkgroup, w.u, w.s, w.U32(0)), w.U32(2000))
				w.Store(k, w.U32(0))
				w.Loop(func() spirv.ID { return w.Op(spirv.OpULessThan, w.boolean, w.Load(w.u, k), c.bound(w)) },
					func(_, _ spirv.ID) bool {
						w.put(w.op(spirv.OpIAdd, w.Load(w.u, w.ptrA(w.i)), w.U32(1)))
						return true
					},
					func() { w.Store(k, w.op(spirv.OpIAdd, w.U32(1), w.Load(w.u, k))) })
			})
			got := launch(t, p, program.Dim3{X: 1, Y: 1, Z: 1}, [][]byte{make([]byte, 256), counting(2001), nil}, ints(0, 2000, 2000, 2000), instrument.NoEntry, 1024)
			require.Equal(t, instrument.TooLong, got.report.End)
			require.Equal(t, c.counted, binary.LittleEndian.Uint32(got.bindings[0]) == 0)
		})
	}
}

// TestCopyOperands: the memory operands of a copy go to its load and its store.
func TestCopyOperands(t *testing.T) {
	const visible, available, own = spirv.MemoryAccessMakePointerVisible, spirv.MemoryAccessMakePointerAvailable, spirv.MemoryAccessNonPrivatePointer
	for name, operands := range map[string]func(scope spirv.ID) []any{
		"one for both": func(scope spirv.ID) []any {
			return []any{visible | available | own | spirv.MemoryAccessAligned, 4, scope, scope}
		},
		"one for each": func(scope spirv.ID) []any {
			return []any{available | own | spirv.MemoryAccessAligned, 4, scope, visible | own, scope}
		},
		"none for the store": func(scope spirv.ID) []any { return []any{0, visible | own, scope} },
	} {
		t.Run(name, func(t *testing.T) {
			b := spirvtest.New()
			b.Version = 0x10500
			b.Capability(spirv.CapabilityVulkanMemoryModel)
			b.Model(spirv.AddressingModelLogical, spirv.MemoryModelVulkan)
			u := b.Uint(32)
			a, c := b.Buffer(0, u, 4), b.Buffer(1, u, 4)
			index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
			scope := b.U32(uint32(spirv.ScopeWorkgroup))
			main := b.Func(b.Void())
			lane1 := b.Load(u, index)
			at := func(buffer spirv.ID) spirv.ID {
				return b.Access(spirv.StorageClassStorageBuffer, u, buffer, b.U32(0), lane1)
			}
			b.Do(spirv.OpCopyMemory, append([]any{at(a), at(c)}, operands(scope)...)...)
			b.Return()
			b.End()
			b.Compute(main, "main", 8, 1, 1)

			p := admitted(t, b)
			accepted(t, p)
			for _, n := range []int{8, 6} {
				l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{make([]byte, 32), counting(n)}}
				v, err := difference(t, p, lane.Options{Block: p.Info.Block}, l, 1000)
				require.NoError(t, err)
				require.Equal(t, n < 8, v.trapped)
			}
		})
	}
}
