package verify_test

import (
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

var machineCases = []refused{
	{verify.CodeHostMemory, spirv.OpTypePointer, 0, "physical addresses", func(b *builder) {
		b.Pointer(spirv.StorageClassPhysicalStorageBuffer, b.Uint(32))
		empty(b)
	}},
	{verify.CodeHostMemory, spirv.OpCapability, -1, "PhysicalStorageBufferAddresses", func(b *builder) {
		b.Capability(spirv.CapabilityPhysicalStorageBufferAddresses)
		empty(b)
	}},
	{verify.CodeElement, spirv.OpVariable, 0, "bool", func(b *builder) { b.Buffer(0, b.Bool(), 4); empty(b) }},
	{verify.CodeRecursion, spirv.OpFunctionCall, 1, "calls itself", func(b *builder) {
		f := b.Func(b.Void())
		g := b.ID()
		b.Call(b.Void(), g)
		b.Return()
		b.End()
		t := b.FuncType(b.Void())
		b.Do(spirv.OpFunction, b.Void(), g, 0, t)
		b.Do(spirv.OpLabel, b.ID())
		b.Do(spirv.OpFunctionCall, b.Void(), b.ID(), f)
		b.Do(spirv.OpReturn)
		b.Do(spirv.OpFunctionEnd)
		kernel(b, func() { b.Call(b.Void(), f) })
	}},
	{verify.CodeDispatch, spirv.OpFunctionCall, 0, "no function", func(b *builder) {
		kernel(b, func() { b.Call(b.Void(), b.U32(7)) })
	}},
	{verify.CodeDispatch, spirv.OpCapability, -1, "FunctionPointersINTEL", func(b *builder) {
		b.Capability(spirv.CapabilityFunctionPointersINTEL)
		empty(b)
	}},
	{verify.CodeStack, spirv.OpFunction, -1, "private memory", func(b *builder) {
		t := b.Array(b.Uint(32), b.U32(2500), 0)
		f := b.Func(b.Void())
		b.Local(t)
		b.Return()
		b.End()
		kernel(b, func() { b.Local(t); b.Call(b.Void(), f) })
	}},
	{verify.CodeNotVoid, spirv.OpFunction, 0, "returns a value", func(b *builder) {
		main := b.Func(b.Uint(32))
		b.ReturnValue(b.U32(1))
		b.End()
		b.Compute(main, "main", 1, 1, 1)
	}},
	{verify.CodeHeap, spirv.OpVariableLengthArrayINTEL, 0, "", func(b *builder) {
		kernel(b, func() {
			b.Op(spirv.OpVariableLengthArrayINTEL, b.Pointer(spirv.StorageClassFunction, b.Uint(32)), b.U32(7))
		})
	}},
	{verify.CodePanic, spirv.OpKill, 0, "", func(b *builder) {
		main := b.Func(b.Void())
		b.Do(spirv.OpKill)
		b.End()
		b.Compute(main, "main", 1, 1, 1)
	}},
	{verify.CodeDimensions, spirv.OpDecorate, 1, "three 32-bit integers", func(b *builder) {
		f := b.Float(32)
		size := b.SpecComposite(b.Vec(f, 3), b.Spec(0, f, 0), b.F32(1), b.F32(1))
		b.Decorate(size, spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
		empty(b)
	}},
	{verify.CodeCapture, spirv.OpVariable, 0, "bool", func(b *builder) { b.Push([]uint32{0}, b.Bool()); empty(b) }},
	{verify.CodeSharedPlace, spirv.OpVariable, 0, "outside functions", func(b *builder) {
		kernel(b, func() {
			b.Op(spirv.OpVariable, b.Pointer(spirv.StorageClassWorkgroup, b.Uint(32)), spirv.StorageClassWorkgroup)
		})
	}},
	{verify.CodeSharedDynamic, spirv.OpVariable, 1, "second dynamic", func(b *builder) {
		t := b.Array(b.Uint(32), b.Spec(3, b.Uint(32), 8), 0)
		x, y := b.Shared(t), b.Shared(t)
		kernel(b, func() {
			for _, s := range []id{x, y} {
				b.Store(b.Access(spirv.StorageClassWorkgroup, b.Uint(32), s, b.U32(0)), b.U32(1))
			}
		})
	}},
	{verify.CodeSharedSize, spirv.OpVariable, 0, "limit is 49152", func(b *builder) {
		s := b.Shared(b.Array(b.Uint(32), b.U32(20000), 0))
		kernel(b, func() { b.Store(b.Access(spirv.StorageClassWorkgroup, b.Uint(32), s, b.U32(0)), b.U32(1)) })
	}},
	{verify.CodeAtomicPointee, spirv.OpAtomicLoad, 0, "other than a number", func(b *builder) {
		s := b.Shared(b.Vec(b.Uint(32), 2))
		kernel(b, func() { b.Op(spirv.OpAtomicLoad, b.Vec(b.Uint(32), 2), s, b.U32(1), b.U32(0)) })
	}},
	{verify.CodeAtomicPointee, spirv.OpAtomicIAdd, 0, "not for this type", func(b *builder) {
		s := b.Shared(b.Float(32))
		kernel(b, func() { b.Op(spirv.OpAtomicIAdd, b.Float(32), s, b.U32(1), b.U32(0), b.F32(1)) })
	}},
	{verify.CodeAtomicType, spirv.OpAtomicIAdd, 0, "16 bits", func(b *builder) {
		b.Capability(spirv.CapabilityInt16)
		s := b.Shared(b.Uint(16))
		kernel(b, func() { b.Op(spirv.OpAtomicIAdd, b.Uint(16), s, b.U32(1), b.U32(0), b.Const(b.Uint(16), 1)) })
	}},
	{verify.CodeAtomicType, spirv.OpAtomicExchange, 0, "64 bits", func(b *builder) {
		b.Capability(spirv.CapabilityFloat64)
		s := b.Shared(b.Float(64))
		kernel(b, func() { b.Op(spirv.OpAtomicExchange, b.Float(64), s, b.U32(1), b.U32(0), b.F64(1)) })
	}},
	{verify.CodeAtomicType, spirv.OpCapability, -1, "AtomicFloat64AddEXT", func(b *builder) {
		b.Capability(spirv.CapabilityAtomicFloat64AddEXT)
		empty(b)
	}},
	{verify.CodePanic, spirv.OpKill, 0, "E-GPU-4017: %", func(b *builder) {
		f := b.Func(b.Void())
		b.Do(spirv.OpKill)
		b.End()
		kernel(b, func() { b.Call(b.Void(), f) })
	}},
	{verify.CodeAtomicMemory, spirv.OpAtomicIAdd, 0, "PushConstant", func(b *builder) {
		p := b.Push([]uint32{0}, b.Uint(32))
		kernel(b, func() {
			at := b.Access(spirv.StorageClassPushConstant, b.Uint(32), p, b.U32(0))
			b.Op(spirv.OpAtomicIAdd, b.Uint(32), at, b.U32(1), b.U32(0), b.U32(1))
		})
	}},
	{verify.CodeHostMemory, spirv.OpConvertPtrToU, 0, "", func(b *builder) {
		kernel(b, func() { b.Op(spirv.OpConvertPtrToU, b.Uint(32), b.Local(b.Uint(32))) })
	}},
	{verify.CodeDispatch, spirv.OpLoad, 0, "as a value", func(b *builder) {
		f := b.Func(b.Void())
		b.Return()
		b.End()
		kernel(b, func() { b.Load(b.Uint(32), f) })
	}},
	{verify.CodePanic, spirv.OpTerminateInvocation, 0, "", func(b *builder) {
		main := b.Func(b.Void())
		b.Do(spirv.OpTerminateInvocation)
		b.End()
		b.Compute(main, "main", 1, 1, 1)
	}},
	{verify.CodeHeap, spirv.OpTypePointer, 0, "generic pointers", func(b *builder) {
		b.Pointer(spirv.StorageClassGeneric, b.Uint(32))
		empty(b)
	}},
	{verify.CodeSemantics, spirv.OpMemoryBarrier, 0, "sequential consistency", func(b *builder) {
		kernel(b, func() {
			b.Do(spirv.OpMemoryBarrier, b.U32(2), b.U32(uint32(spirv.MemorySemanticsSequentiallyConsistent)))
		})
	}},
	{verify.CodePointer, spirv.OpGroupNonUniformShuffle, 0, "a pointer from", func(b *builder) {
		b.Capability(spirv.CapabilityGroupNonUniformShuffle)
		variablePointers(b, spirv.CapabilityVariablePointers)
		s := b.Shared(b.Uint(32))
		kernel(b, func() {
			b.Op(spirv.OpGroupNonUniformShuffle, b.Pointer(spirv.StorageClassWorkgroup, b.Uint(32)), b.U32(3), s, b.U32(0))
		})
	}},
	{verify.CodeAtomicMemory, spirv.OpAtomicIAdd, 0, "Function", func(b *builder) {
		kernel(b, func() { b.Op(spirv.OpAtomicIAdd, b.Uint(32), b.Local(b.Uint(32)), b.U32(1), b.U32(0), b.U32(1)) })
	}},
	{verify.CodeShuffle, spirv.OpGroupNonUniformShuffle, 0, "move its parts", func(b *builder) {
		b.Capability(spirv.CapabilityGroupNonUniformShuffle)
		kernel(b, func() {
			t := b.Struct(b.Uint(32))
			b.Op(spirv.OpGroupNonUniformShuffle, t, b.U32(3), b.Null(t), b.U32(0))
		})
	}},
}
