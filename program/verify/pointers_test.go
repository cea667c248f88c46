package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

const storageBuffer = spirv.StorageClassStorageBuffer

// variablePointers declares capability and extension.
func variablePointers(b *builder, c spirv.Capability) {
	b.Capability(c)
	b.Extension("SPV_KHR_variable_pointers")
}

var pointerCases = []refused{
	{verify.CodePointer, spirv.OpSelect, 0, "without capability VariablePointersStorageBuffer", func(b *builder) {
		_, first := u32s(b, 0)
		kernel(b, func() {
			b.Op(spirv.OpSelect, b.Pointer(storageBuffer, b.Uint(32)), b.BoolConst(true), first(), first())
		})
	}},
	{verify.CodePointer, spirv.OpSelect, 0, "without capability VariablePointers", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
		x := b.Shared(b.Uint(32))
		kernel(b, func() {
			b.Op(spirv.OpSelect, b.Pointer(spirv.StorageClassWorkgroup, b.Uint(32)), b.BoolConst(true), x, x)
		})
	}},
	{verify.CodePointer, spirv.OpSelect, 0, "to storage class Function", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointers)
		kernel(b, func() {
			x := b.Local(b.Uint(32))
			b.Op(spirv.OpSelect, b.Pointer(spirv.StorageClassFunction, b.Uint(32)), b.BoolConst(true), x, x)
		})
	}},
	{verify.CodePointer, spirv.OpConstantNull, 0, "a constant pointer", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointers)
		b.Null(b.Pointer(spirv.StorageClassPrivate, b.Uint(32)))
		empty(b)
	}},
	{verify.CodePointer, spirv.OpSelect, 0, "a pointer to a matrix, or into one", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
		m := matrixType(b, 2, 2)
		s := b.Block([]uint32{0}, m)
		b.MemberDecorate(s, 0, spirv.DecorationMatrixStride, 8)
		b.MemberDecorate(s, 0, spirv.DecorationColMajor)
		buffer := b.BufferOf(0, s)
		kernel(b, func() {
			column := b.Access(storageBuffer, b.Vec(b.Float(32), 2), buffer, b.U32(0), b.U32(1))
			b.Op(spirv.OpSelect, b.Pointer(storageBuffer, b.Vec(b.Float(32), 2)), b.BoolConst(true), column, column)
		})
	}},
	{verify.CodePointer, spirv.OpArrayLength, 0, "chosen when the program runs", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
		block := b.Block([]uint32{0}, b.RuntimeArray(b.Uint(32), 4))
		x, y := b.BufferOf(0, block), b.BufferOf(1, block)
		kernel(b, func() {
			p := b.Op(spirv.OpSelect, b.Pointer(storageBuffer, block), b.BoolConst(true), x, y)
			b.Op(spirv.OpArrayLength, b.Uint(32), p, 0)
		})
	}},
	{verify.CodeBinding, spirv.OpSelect, 0, "an array of buffers as a whole", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
		array := b.Array(b.Block([]uint32{0}, b.Uint(32)), b.U32(2), 0)
		x := b.BufferOf(0, array)
		kernel(b, func() { b.Op(spirv.OpSelect, b.Pointer(storageBuffer, array), b.BoolConst(true), x, x) })
	}},
	{verify.CodeAccess, spirv.OpStore, 0, "may be NonWritable", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
		_, first := u32s(b, 0)
		other, second := u32s(b, 1)
		b.Decorate(other, spirv.DecorationNonWritable)
		kernel(b, func() {
			b.Store(b.Op(spirv.OpSelect, b.Pointer(storageBuffer, b.Uint(32)), b.BoolConst(true), first(), second()), b.U32(1))
		})
	}},
	{verify.CodeAccess, spirv.OpStore, 0, "NonWritable", func(b *builder) {
		b.Capability(spirv.CapabilityStorageBufferArrayDynamicIndexing)
		v, _ := buffers(b, 2)
		b.Decorate(v, spirv.DecorationNonWritable)
		kernel(b, func() {
			i := b.Load(b.Uint(32), b.Local(b.Uint(32)))
			b.Store(b.Access(storageBuffer, b.Uint(32), v, i, b.U32(0)), b.U32(1))
		})
	}},
	{verify.CodeLayout, spirv.OpPtrAccessChain, 0, "no ArrayStride", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
		_, first := u32s(b, 0)
		kernel(b, func() { b.Op(spirv.OpPtrAccessChain, b.Pointer(storageBuffer, b.Uint(32)), first(), b.I32(1)) })
	}},
	{verify.CodeLayout, spirv.OpDecorate, -1, "a stride of 6 for what is aligned to 4", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
		_, first := u32s(b, 0)
		p := b.Decorate(b.Pointer(storageBuffer, b.Uint(32)), spirv.DecorationArrayStride, 6)
		kernel(b, func() { b.Op(spirv.OpPtrAccessChain, p, first(), b.I32(1)) })
	}},
	{verify.CodePointer, spirv.OpPtrAccessChain, 0, "to storage class Function", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointers)
		p := b.Decorate(b.Pointer(spirv.StorageClassFunction, b.Uint(32)), spirv.DecorationArrayStride, 4)
		kernel(b, func() { b.Op(spirv.OpPtrAccessChain, p, b.Local(b.Uint(32)), b.I32(1)) })
	}},
	{verify.CodeNeeds, spirv.OpPtrEqual, 0, "SPIR-V 1.4", func(b *builder) {
		variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
		_, first := u32s(b, 0)
		kernel(b, func() { b.Op(spirv.OpPtrEqual, b.Bool(), first(), first()) })
	}},
	{verify.CodePointer, spirv.OpPtrEqual, 0, "a comparison of other than", func(b *builder) {
		b.Version = 0x10400
		variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
		kernel(b, func() { b.Op(spirv.OpPtrEqual, b.Bool(), b.Local(b.Uint(32)), b.Local(b.Uint(32))) })
	}},
	{verify.CodeNeeds, spirv.OpCapability, -1, "variable_pointers", func(b *builder) {
		b.Version = 0x10200
		b.Capability(spirv.CapabilityVariablePointers)
		empty(b)
	}},
}

// TestChosenBindings: each binding is used as the pointers that may lead there are,
// whichever way they take.
func TestChosenBindings(t *testing.T) {
	b := spirvtest.New()
	variablePointers(b, spirv.CapabilityVariablePointersStorageBuffer)
	u := b.Uint(32)
	t1 := b.Pointer(storageBuffer, u)
	var first []func() id
	for i := range uint32(6) {
		buffer, f := u32s(b, i)
		if i == 0 || i == 4 {
			b.Decorate(buffer, spirv.DecorationNonWritable)
		}
		first = append(first, f)
	}

	copies := b.Func(b.Void(), t1, t1)
	b.Store(b.Param(0), b.Load(u, b.Param(1)))
	b.Return()
	b.End()
	returned := b.Func(t1, t1)
	b.ReturnValue(b.Param(0))
	b.End()

	main := b.Func(b.Void())
	kept := b.Local(t1)
	b.Call(b.Void(), copies, first[1](), first[0]())
	b.Call(b.Void(), copies, first[2](), first[0]())
	b.Op(spirv.OpAtomicIAdd, u, b.Call(t1, returned, first[3]()), b.U32(1), b.U32(0), b.U32(1))
	b.Store(kept, first[4]())
	b.Load(u, b.Load(t1, kept))
	b.Load(u, b.Op(spirv.OpSelect, t1, b.BoolConst(false), first[5](), b.Null(t1)))
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)

	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	require.NotNil(t, p.Chosen)
	var got []program.Access
	for _, x := range p.Info.Bindings {
		got = append(got, x.Access)
	}
	require.Equal(t, []program.Access{program.Read, program.Write, program.Write, program.ReadWrite, program.Read, program.Read}, got)
	require.False(t, p.Info.OrderDependent, "nothing uses the atomic operation's result")
}
