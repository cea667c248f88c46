package lane_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// TestChosenPointers: where a pointer leads is known when the program runs; a trap
// names that binding, and the byte.
func TestChosenPointers(t *testing.T) {
	const storage = spirv.StorageClassStorageBuffer
	b := spirvtest.New()
	b.Capability(spirv.CapabilityVariablePointers)
	b.Extension("SPV_KHR_variable_pointers")
	u := b.Uint(32)
	four := b.Array(u, b.U32(4), 4)
	block := b.Block([]uint32{0, 16}, four, b.RuntimeArray(u, 4))
	var buffers []spirv.ID
	for i := range uint32(3) {
		buffers = append(buffers, b.BufferOf(i, block))
	}
	how := b.Push([]uint32{0, 4, 8}, u, u, u) // which pointer, index into the fixed array, and the other
	index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
	shared := b.Shared(four)
	pointer, row := b.Pointer(storage, u), b.Pointer(storage, four)

	main := b.Func(b.Void())
	me := b.Load(u, index)
	push := func(i uint32) spirv.ID {
		return b.Load(u, b.Access(spirv.StorageClassPushConstant, u, how, b.U32(i)))
	}
	is := func(n uint32) spirv.ID { return b.Op(spirv.OpIEqual, b.Bool(), push(0), b.U32(n)) }
	odd := b.Op(spirv.OpINotEqual, b.Bool(), b.Op(spirv.OpBitwiseAnd, u, me, b.U32(1)), b.U32(0))
	rows := func(i int) spirv.ID { return b.Access(storage, four, buffers[i], b.U32(0)) }
	open := func(i int) spirv.ID { return b.Access(storage, u, buffers[i], b.U32(1), push(2)) }

	// The chain goes on from a row that is chosen: its index is compared with the row's
	// length, the place with the binding's.
	chosen := b.Op(spirv.OpSelect, row, odd, rows(1), rows(0))
	fixed := b.Access(storage, u, chosen, push(1))
	p := b.Op(spirv.OpSelect, pointer, is(0), fixed, b.Op(spirv.OpSelect, pointer, odd, open(2), open(0)))
	p = b.Op(spirv.OpSelect, pointer, is(2), b.Null(pointer), p)
	b.Store(p, b.Op(spirv.OpIAdd, u, b.Load(u, p), b.U32(100)))

	local := b.Access(spirv.StorageClassWorkgroup, u, shared, push(1))
	workgroup := b.Pointer(spirv.StorageClassWorkgroup, u)
	q := b.Op(spirv.OpSelect, workgroup, is(3), local, b.Access(spirv.StorageClassWorkgroup, u, shared, b.U32(0)))
	b.Op(spirv.OpAtomicIAdd, u, q, b.U32(uint32(spirv.ScopeWorkgroup)), b.U32(0), b.U32(1))
	b.Return()
	b.End()
	b.Compute(main, "main", 2, 1, 1)

	p1, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	k, err := lane.Compile(p1, lane.Options{})
	require.NoError(t, err)
	run := func(how, at, far uint32) ([][]byte, lane.Result) {
		l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Inline: lane.Words(how, at, far)}
		for i := range uint32(3) {
			l.Bindings = append(l.Bindings, count(8, func(k uint32) uint32 { return 10*i + k }))
		}
		require.NoError(t, difference(p1, lane.Options{}, l))
		return l.Bindings, k.NewWorker().Run(l, 0, 1, nil)
	}
	trap := func(binding uint16, off uint64, at uint32) lane.Result {
		return lane.Result{Trap: outcome.Trap{Kind: outcome.OutOfBounds, Binding: binding, Offset: off, Lane: at}}
	}

	got, r := run(0, 3, 0)
	require.Equal(t, lane.Result{}, r)
	require.Equal(t, lane.Words(0, 1, 2, 103, 4, 5, 6, 7), got[0])
	require.Equal(t, lane.Words(10, 11, 12, 113, 14, 15, 16, 17), got[1])

	got, r = run(1, 0, 2)
	require.Equal(t, lane.Result{}, r)
	require.Equal(t, lane.Words(0, 1, 2, 3, 4, 5, 106, 7), got[0])
	require.Equal(t, lane.Words(20, 21, 22, 23, 24, 25, 126, 27), got[2])

	_, r = run(0, 5, 0)
	require.Equal(t, trap(0, 20, 0), r, "beyond the row, in the binding")
	_, r = run(1, 0, 4)
	require.Equal(t, trap(0, 32, 0), r)
	_, r = run(1, 0, 1<<30)
	require.Equal(t, trap(0, 16+4<<30, 0), r, "not 16 in 32 bits")
	_, r = run(2, 0, 0)
	require.Equal(t, trap(outcome.NoBinding, 0, 0), r, "a pointer to nothing")
	_, r = run(3, 0, 1)
	require.Equal(t, lane.Result{}, r)
	_, r = run(3, 9, 1)
	require.Equal(t, trap(outcome.NoBinding, 36, 0), r)
}

// TestChosenMisaligned: the trap of a binding that is not aligned names it.
func TestChosenMisaligned(t *testing.T) {
	b := spirvtest.New()
	b.Capability(spirv.CapabilityVariablePointers)
	b.Extension("SPV_KHR_variable_pointers")
	u := b.Uint(32)
	pointer := b.Pointer(spirv.StorageClassStorageBuffer, u)
	x, y := b.Buffer(0, u, 4), b.Buffer(1, u, 4)
	index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
	main := b.Func(b.Void())
	at := func(buffer spirv.ID) spirv.ID {
		return b.Access(spirv.StorageClassStorageBuffer, u, buffer, b.U32(0), b.U32(1))
	}
	last := b.Op(spirv.OpIEqual, b.Bool(), b.Load(u, index), b.U32(3))
	b.Store(b.Op(spirv.OpSelect, pointer, last, at(y), at(x)), b.U32(1))
	b.Return()
	b.End()
	b.Compute(main, "main", 4, 1, 1)
	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{make([]byte, 8), make([]byte, 9)[1:]}}
	require.NoError(t, difference(p, lane.Options{}, l))
	k, err := lane.Compile(p, lane.Options{})
	require.NoError(t, err)
	r := k.NewWorker().Run(l, 0, 1, nil)
	require.Equal(t, outcome.Trap{Kind: outcome.Misaligned, Binding: 1, Offset: 4, Lane: 3}, r.Trap)
	require.Equal(t, make([]byte, 8), l.Bindings[0], "nothing is stored")
}

// TestLoadsOfBuffers: two loads of one word are two, also without Volatile.
func TestLoadsOfBuffers(t *testing.T) {
	b := spirvtest.New()
	u := b.Uint(32)
	x := b.Buffer(0, u, 4)
	main := b.Func(b.Void())
	at := b.Access(spirv.StorageClassStorageBuffer, u, x, b.U32(0), b.U32(0))
	first := b.Load(u, at)
	b.Op(spirv.OpAtomicIAdd, u, at, b.U32(uint32(spirv.ScopeDevice)), b.U32(0), b.U32(1))
	b.Store(b.Access(spirv.StorageClassStorageBuffer, u, x, b.U32(0), b.U32(1)), b.Op(spirv.OpISub, u, b.Load(u, at), first))
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	require.Equal(t, lane.Words(6, 1), runWords(t, b.Bytes(), lane.Words(5, 0)))
}

func runWords(t *testing.T, module, words []byte) []byte {
	p, err := verify.Admit(module, verify.DefaultLimits())
	require.NoError(t, err)
	k, err := lane.Compile(p, lane.Options{})
	require.NoError(t, err)
	l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{words}}
	require.Equal(t, lane.Result{}, k.NewWorker().Run(l, 0, 1, nil))
	return words
}

// TestPointerSteps: a step of a pointer leads nowhere but in its own variable or
// binding, forward and back.
func TestPointerSteps(t *testing.T) {
	const storage, workgroup = spirv.StorageClassStorageBuffer, spirv.StorageClassWorkgroup
	b := spirvtest.New()
	b.Version = 0x10400
	b.Capability(spirv.CapabilityVariablePointers)
	u, s := b.Uint(32), b.Int(32)
	four := b.Array(u, b.U32(4), 0)
	block := b.Block([]uint32{4}, b.RuntimeArray(u, 4))
	x := b.BufferOf(0, block)
	how := b.Push([]uint32{0, 4}, s, s) // steps in the buffer, and in shared memory
	before, middle, after := b.Shared(four), b.Shared(four), b.Shared(four)
	pointer := b.Decorate(b.Pointer(storage, u), spirv.DecorationArrayStride, 4)
	local := b.Pointer(workgroup, u)

	main := b.Func(b.Void())
	push := func(i uint32) spirv.ID {
		return b.Load(s, b.Access(spirv.StorageClassPushConstant, s, how, b.U32(i)))
	}
	for _, v := range []spirv.ID{before, after} {
		b.Store(b.Access(workgroup, u, v, b.U32(0)), b.U32(1))
	}
	second := b.Access(storage, u, x, b.U32(0), b.U32(1))
	p := b.Op(spirv.OpPtrAccessChain, pointer, second, push(0))
	same := b.Op(spirv.OpPtrEqual, b.Bool(), p, b.Access(storage, u, x, b.U32(0), b.U32(3)))
	b.Store(p, b.Op(spirv.OpSelect, u, same, b.U32(77), b.U32(55)))
	b.Store(b.Op(spirv.OpPtrAccessChain, local, b.Access(workgroup, u, middle, b.U32(2)), push(1)), b.U32(3))
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)

	p1, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	k, err := lane.Compile(p1, lane.Options{})
	require.NoError(t, err)
	run := func(buffer, shared int32) ([]byte, outcome.Trap) {
		l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Inline: lane.Words(uint32(buffer), uint32(shared)), Bindings: [][]byte{make([]byte, 20)}}
		require.NoError(t, difference(p1, lane.Options{}, l))
		return l.Bindings[0], k.NewWorker().Run(l, 0, 1, nil).Trap
	}

	for _, c := range []struct {
		buffer, shared int32
		want           []byte
	}{
		{2, 1, lane.Words(0, 0, 0, 0, 77)}, {-1, -2, lane.Words(0, 55, 0, 0, 0)}, {-2, 0, lane.Words(55, 0, 0, 0, 0)},
	} {
		got, trap := run(c.buffer, c.shared)
		require.Equal(t, outcome.Trap{}, trap)
		require.Equal(t, c.want, got)
	}
	for _, c := range []struct {
		buffer, shared int32
		binding        uint16
		off            uint64
	}{
		{3, 0, 0, 20}, {-3, 0, 0, 1<<55 - 4}, {1<<31 - 1, 0, 0, 8 + 4*(1<<31-1)},
		{0, 2, outcome.NoBinding, 16}, {0, -3, outcome.NoBinding, 1<<55 - 4},
	} {
		_, trap := run(c.buffer, c.shared)
		require.Equal(t, outcome.Trap{Kind: outcome.OutOfBounds, Binding: c.binding, Offset: c.off}, trap)
	}
}

// TestIndexedBuffers: the buffer of an array of them by an index that the run tells,
// and that lanes may differ in.
func TestIndexedBuffers(t *testing.T) {
	b := spirvtest.New()
	b.Capability(spirv.CapabilityStorageBufferArrayDynamicIndexing, spirv.CapabilityShaderNonUniform, spirv.CapabilityStorageBufferArrayNonUniformIndexing)
	b.Extension("SPV_EXT_descriptor_indexing")
	u := b.Uint(32)
	x := b.Buffer(0, u, 4)
	y := b.BufferOf(1, b.Array(b.Block([]uint32{0}, b.RuntimeArray(u, 4)), b.U32(3), 0))
	index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
	main := b.Func(b.Void())
	me := b.Load(u, index)
	which := b.Load(u, b.Access(spirv.StorageClassStorageBuffer, u, x, b.U32(0), me))
	at := b.Access(spirv.StorageClassStorageBuffer, u, y, which, b.U32(0), me)
	b.Decorate(at, spirv.DecorationNonUniform)
	b.Store(at, b.Op(spirv.OpIAdd, u, b.Load(u, at), b.Op(spirv.OpIAdd, u, me, b.U32(1))))
	b.Return()
	b.End()
	b.Compute(main, "main", 4, 1, 1)

	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	require.Equal(t, program.Read, p.Info.Bindings[0].Access)
	for _, any := range p.Info.Bindings[1:] {
		require.Equal(t, program.ReadWrite, any.Access)
	}
	k, err := lane.Compile(p, lane.Options{})
	require.NoError(t, err)
	run := func(which ...uint32) ([][]byte, outcome.Trap) {
		l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{lane.Words(which...), make([]byte, 16), make([]byte, 12), make([]byte, 16)}}
		require.NoError(t, difference(p, lane.Options{}, l))
		return l.Bindings, k.NewWorker().Run(l, 0, 1, nil).Trap
	}

	got, trap := run(2, 0, 1, 2)
	require.Equal(t, outcome.Trap{}, trap)
	require.Equal(t, [][]byte{lane.Words(0, 2, 0, 0), lane.Words(0, 0, 3), lane.Words(1, 0, 0, 4)}, got[1:])
	_, trap = run(2, 0, 1, 1)
	require.Equal(t, outcome.Trap{Kind: outcome.OutOfBounds, Binding: 2, Offset: 12, Lane: 3}, trap)
	for _, none := range []uint32{3, 1<<32 - 1, 1<<32 - 2} {
		_, trap = run(2, none, 1, 2)
		require.Equal(t, outcome.Trap{Kind: outcome.OutOfBounds, Binding: outcome.NoBinding, Lane: 1}, trap)
	}
}
