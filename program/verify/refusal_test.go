package verify_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

type builder = spirvtest.Builder
type id = spirv.ID

// refused is a module that is refused: with this code, at the nth (from 0; -1: the
// last) instruction of this opcode.
type refused struct {
	code  verify.Code
	op    spirv.Opcode
	n     int
	says  string
	build func(b *builder)
}

// kernel adds an entry point with this body.
func kernel(b *builder, body func()) id {
	main := b.Func(b.Void())
	body()
	b.Return()
	b.End()
	b.Compute(main, "main", 64, 1, 1)
	return main
}

// empty adds an entry point that does nothing.
func empty(b *builder) { kernel(b, func() {}) }

// u32s is a buffer of integers and a pointer to its first.
func u32s(b *builder, binding uint32) (buffer id, first func() id) {
	buffer = b.Buffer(binding, b.Uint(32), 4)
	return buffer, func() id { return b.Access(spirv.StorageClassStorageBuffer, b.Uint(32), buffer, b.U32(0), b.U32(0)) }
}

// matrixType is a matrix of f32.
func matrixType(b *builder, columns, rows int) id {
	m := b.ID()
	b.Declare(spirv.OpTypeMatrix, m, b.Vec(b.Float(32), rows), columns)
	return m
}

// buffers is an array of n buffers of one integer, with the binding 0.
func buffers(b *builder, n uint32) (v, t id) {
	t = b.Array(b.Block([]uint32{0}, b.Uint(32)), b.U32(n), 0)
	v = b.Global(spirv.StorageClassStorageBuffer, t)
	b.Decorate(v, spirv.DecorationDescriptorSet, 0)
	return b.Decorate(v, spirv.DecorationBinding, 0), t
}

// offset is the place of the nth instruction of an opcode, in bytes; -1 if nowhere.
func offset(module []byte, op spirv.Opcode, n int) int {
	var all []int
	for i := 20; i+4 <= len(module); {
		w := binary.LittleEndian.Uint32(module[i:])
		if spirv.Opcode(w&0xFFFF) == op {
			all = append(all, i)
		}
		i += int(w>>16) * 4
	}
	if n < 0 {
		n += len(all)
	}
	if n < 0 || n >= len(all) {
		return -1
	}
	return all[n]
}

func TestRefusals(t *testing.T) {
	seen := map[verify.Code]bool{}
	for _, list := range [][]refused{outsideCases, invalidCases, flowCases, machineCases, pointerCases, dotCases} {
		for _, c := range list {
			b := spirvtest.New()
			c.build(b)
			module := b.Bytes()
			bundle := module
			if c.code == verify.CodeSharedDynamic {
				n := uint32(program.SpecShared)
				var err error
				bundle, err = program.Encode(module, &program.Manifest{DynamicShared: &n})
				require.NoError(t, err)
			}
			_, err := verify.Admit(bundle, verify.DefaultLimits())
			var r *program.Refusal
			require.ErrorAs(t, err, &r, "%s: %s", c.code, c.says)
			require.Equal(t, c.code, r.Code, "%s: %v", c.says, r)
			require.Contains(t, r.Message, c.says)
			require.Equal(t, c.op.String(), r.Op, "%v", r)
			require.Equal(t, offset(module, c.op, c.n), int(r.Off), "%v", r)
			seen[c.code] = true
		}
	}

	for code := range verify.Codes {
		if code[0] != 'W' && !(code >= "SPV-2100" && code < "SPV-3000") {
			require.True(t, seen[code], "no module here is refused with %s: %s", code, verify.Codes[code])
		}
	}
}

var outsideCases = []refused{
	{verify.CodeCapability, spirv.OpCapability, -1, "Geometry", func(b *builder) { b.Capability(spirv.CapabilityGeometry); empty(b) }},
	{verify.CodeExtension, spirv.OpExtension, 0, "SPV_KHR_ray_query", func(b *builder) { b.Extension("SPV_KHR_ray_query"); empty(b) }},
	{verify.CodeImport, spirv.OpExtInstImport, 0, "OpenCL.std", func(b *builder) { b.Import("OpenCL.std"); empty(b) }},
	{verify.CodeModel, spirv.OpMemoryModel, 0, "OpenCL", func(b *builder) {
		b.Model(spirv.AddressingModelLogical, spirv.MemoryModelOpenCL)
		empty(b)
	}},
	{verify.CodeModel, spirv.OpMemoryModel, 0, "Physical32", func(b *builder) {
		b.Model(spirv.AddressingModelPhysical32, spirv.MemoryModelGLSL450)
		empty(b)
	}},
	{verify.CodeEntryPoints, spirv.OpEntryPoint, 0, "Fragment", func(b *builder) {
		f := b.Func(b.Void())
		b.Return()
		b.End()
		b.Entry(spirv.ExecutionModelFragment, f, "main")
	}},
	{verify.CodeInterface, spirv.OpEntryPoint, 1, "a second entry point", func(b *builder) {
		f := kernel(b, func() {})
		b.Compute(f, "main", 0, 0, 0)
	}},
	{verify.CodeConstant, spirv.OpConstant, 0, "does not continue", func(b *builder) {
		b.Capability(spirv.CapabilityInt16)
		b.Const(b.Int(16), 0x8000)
		empty(b)
	}},
	{verify.CodeEntryPoints, spirv.OpMemoryModel, 0, "no entry point", func(b *builder) {}},
	{verify.CodeMode, spirv.OpExecutionMode, 1, "ContractionOff", func(b *builder) {
		b.Mode(kernel(b, func() {}), spirv.ExecutionModeContractionOff)
	}},
	{verify.CodeOpcode, spirv.OpDPdx, 0, "", func(b *builder) {
		kernel(b, func() { b.Op(spirv.OpDPdx, b.Float(32), b.F32(1)) })
	}},
	{verify.CodeNeeds, spirv.OpCopyMemory, 0, "need the memory model Vulkan", func(b *builder) {
		kernel(b, func() {
			v := b.Local(b.Float(32))
			b.Do(spirv.OpCopyMemory, v, v, spirv.MemoryAccessNonPrivatePointer)
		})
	}},
	{verify.CodeNeeds, spirv.OpCopyMemory, 0, "need SPIR-V 1.4", func(b *builder) { copies(b, 0x10300, 1, 1) }},
	{verify.CodeMemory, spirv.OpCopyMemory, 0, "memory operands", func(b *builder) { copies(b, 0x10500, 1, 0x10000, b.U32(2)) }},
	{verify.CodeOperand, spirv.OpCopyMemory, 0, "an alignment of 3", func(b *builder) { copies(b, 0x10500, 2, 4, 3, 3) }},
	{verify.CodeOperand, spirv.OpCopyMemory, 0, "memory operands", func(b *builder) {
		copies(b, 0x10500, spirv.MemoryAccessNonPrivatePointer,
			spirv.MemoryAccessNonPrivatePointer|spirv.MemoryAccessMakePointerAvailable, b.U32(uint32(spirv.ScopeWorkgroup)))
	}},
	{verify.CodeScope, spirv.OpCopyMemory, 0, "is outside the profile", func(b *builder) {
		copies(b, 0x10500, spirv.MemoryAccessNonPrivatePointer,
			spirv.MemoryAccessNonPrivatePointer|spirv.MemoryAccessMakePointerVisible, b.U32(77))
	}},
	{verify.CodeOperand, spirv.OpCopyMemory, 0, "what the first one points to", func(b *builder) {
		kernel(b, func() { b.Do(spirv.OpCopyMemory, b.Local(b.Float(32)), b.Local(b.Uint(32))) })
	}},
	{verify.CodeVariable, spirv.OpVariable, 0, "may begin as OpConstantNull", func(b *builder) {
		b.Global(spirv.StorageClassWorkgroup, b.Uint(32), b.U32(1))
		empty(b)
	}},
	{verify.CodeNeeds, spirv.OpExecutionMode, 1, "RoundingModeRTE", func(b *builder) {
		b.Mode(kernel(b, func() {}), spirv.ExecutionModeRoundingModeRTE, 32)
	}},
	{verify.CodeCapability, spirv.OpCapability, -1, "60000", func(b *builder) { b.Capability(60000); empty(b) }},
	{verify.CodeType, spirv.OpTypeSampler, 0, "", func(b *builder) { b.Declare(spirv.OpTypeSampler, b.ID()); empty(b) }},
	{verify.CodeDeclaration, spirv.OpTypeMatrix, 0, "2 to 4 vectors of floats", func(b *builder) {
		b.Declare(spirv.OpTypeMatrix, b.ID(), b.Vec(b.Uint(32), 2), 2)
		empty(b)
	}},
	{verify.CodeLayout, spirv.OpTypeStruct, 0, "without MatrixStride", func(b *builder) {
		b.BufferOf(0, b.Block([]uint32{0}, matrixType(b, 2, 2)))
		empty(b)
	}},
	{verify.CodeLayout, spirv.OpTypeMatrix, 0, "a MatrixStride of 4 for 8 bytes", func(b *builder) {
		s := b.Block([]uint32{0}, matrixType(b, 2, 2))
		b.MemberDecorate(s, 0, spirv.DecorationMatrixStride, 4)
		b.MemberDecorate(s, 0, spirv.DecorationColMajor)
		b.BufferOf(0, s)
		empty(b)
	}},
	{verify.CodeLayout, spirv.OpTypeStruct, 0, "overlaps member 0", func(b *builder) {
		s := b.Block([]uint32{0, 24}, matrixType(b, 3, 2), b.Float(32)) // rows of 12 bytes, 16 apart
		b.MemberDecorate(s, 0, spirv.DecorationMatrixStride, 16)
		b.MemberDecorate(s, 0, spirv.DecorationRowMajor)
		b.BufferOf(0, s)
		empty(b)
	}},
	{verify.CodeDecorated, spirv.OpMemberDecorate, -1, "no matrix", func(b *builder) {
		b.MemberDecorate(b.Struct(b.Float(32)), 0, spirv.DecorationColMajor)
		empty(b)
	}},
	{verify.CodeOperand, spirv.OpMatrixTimesVector, 0, "do not fit", func(b *builder) {
		m, v := matrixType(b, 3, 2), b.Vec(b.Float(32), 2)
		kernel(b, func() { b.Op(spirv.OpMatrixTimesVector, v, b.Null(m), b.Null(v)) })
	}},
	{verify.CodeOperand, spirv.OpExtInst, 0, "a square matrix", func(b *builder) {
		m := matrixType(b, 3, 2)
		kernel(b, func() { b.Ext(spirv.GLSLDeterminant, b.Float(32), b.Null(m)) })
	}},
	{verify.CodeType, spirv.OpTypeInt, 0, "24 bits", func(b *builder) { b.Uint(24); empty(b) }},
	{verify.CodeType, spirv.OpTypeVector, 0, "8 components", func(b *builder) { b.Vec(b.Float(32), 8); empty(b) }},
	{verify.CodeClass, spirv.OpTypePointer, 0, "Output", func(b *builder) { b.Pointer(spirv.StorageClassOutput, b.Float(32)); empty(b) }},
	{verify.CodeVariable, spirv.OpVariable, 0, "uniform buffer without a size", func(b *builder) {
		b.Global(spirv.StorageClassUniform, b.Block([]uint32{0}, b.RuntimeArray(b.Uint(32), 4)))
		empty(b)
	}},
	{verify.CodeAccess, spirv.OpStore, 0, "NonWritable", func(b *builder) {
		v := b.Global(spirv.StorageClassUniform, b.Block([]uint32{0}, b.Uint(32)))
		b.Decorate(v, spirv.DecorationDescriptorSet, 0)
		b.Decorate(v, spirv.DecorationBinding, 0)
		kernel(b, func() { b.Store(b.Access(spirv.StorageClassUniform, b.Uint(32), v, b.U32(0)), b.U32(1)) })
	}},
	{verify.CodeDecoration, spirv.OpDecorate, 0, "Flat", func(b *builder) {
		b.Decorate(b.Shared(b.Uint(32)), spirv.DecorationFlat)
		empty(b)
	}},
	{verify.CodeBuiltIn, spirv.OpVariable, 0, "VertexIndex", func(b *builder) {
		b.Input(b.Uint(32), spirv.BuiltInVertexIndex)
		empty(b)
	}},
	{verify.CodeSmall, spirv.OpIAddCarry, 0, "16 bits", func(b *builder) {
		b.Capability(spirv.CapabilityInt16)
		kernel(b, func() {
			c := b.Const(b.Uint(16), 1)
			b.Op(spirv.OpIAddCarry, b.Struct(b.Uint(16), b.Uint(16)), c, c)
		})
	}},
	{verify.CodeNeeds, spirv.OpFAdd, 0, "needs capability Float16", func(b *builder) {
		b.Capability(spirv.CapabilityStorageBuffer16BitAccess)
		kernel(b, func() { c := b.Const(b.Float(16), 1); b.Op(spirv.OpFAdd, b.Float(16), c, c) })
	}},
	{verify.CodeNeeds, spirv.OpSGreaterThan, 0, "needs capability Int8", func(b *builder) {
		b.Capability(spirv.CapabilityStorageBuffer8BitAccess)
		b.Extension("SPV_KHR_8bit_storage")
		kernel(b, func() { c := b.Const(b.Int(8), 1); b.Op(spirv.OpSGreaterThan, b.Bool(), c, c) })
	}},
	{verify.CodeNeeds, spirv.OpVariable, 0, "StoragePushConstant16", func(b *builder) {
		b.Capability(spirv.CapabilityInt16)
		b.Push([]uint32{0}, b.Int(16))
		empty(b)
	}},
	{verify.CodeExtended, spirv.OpExtInst, 0, "IMix", func(b *builder) {
		kernel(b, func() { b.Ext(spirv.GLSLIMix, b.Int(32), b.I32(1), b.I32(2), b.I32(3)) })
	}},
	{verify.CodePointer, spirv.OpSelect, 0, "", func(b *builder) {
		kernel(b, func() {
			v := b.Local(b.Uint(32))
			b.Op(spirv.OpSelect, b.Pointer(spirv.StorageClassFunction, b.Uint(32)), b.BoolConst(true), v, v)
		})
	}},
	{verify.CodePointer, spirv.OpTypePointer, 1, "pointer to a pointer", func(b *builder) {
		b.Pointer(spirv.StorageClassFunction, b.Pointer(spirv.StorageClassFunction, b.Uint(32)))
		empty(b)
	}},
	{verify.CodePointer, spirv.OpFunctionParameter, 0, "handed to a function", func(b *builder) {
		b.Func(b.Void(), b.Pointer(spirv.StorageClassStorageBuffer, b.Uint(32)))
		b.Return()
		b.End()
		empty(b)
	}},
	{verify.CodeScope, spirv.OpControlBarrier, 0, "Device", func(b *builder) {
		kernel(b, func() { b.Do(spirv.OpControlBarrier, b.U32(1), b.U32(1), b.U32(0)) })
	}},
	{verify.CodeScope, spirv.OpGroupNonUniformIAdd, 0, "PartitionedReduceNV", func(b *builder) {
		b.Capability(spirv.CapabilityGroupNonUniformArithmetic, spirv.CapabilityGroupNonUniform)
		kernel(b, func() {
			b.Op(spirv.OpGroupNonUniformIAdd, b.Uint(32), b.U32(3), spirv.GroupOperationPartitionedReduceNV, b.U32(1))
		})
	}},
	{verify.CodeNeeds, spirv.OpGroupNonUniformIAdd, 0, "GroupNonUniformClustered", func(b *builder) {
		b.Capability(spirv.CapabilityGroupNonUniformArithmetic, spirv.CapabilityGroupNonUniform)
		kernel(b, func() {
			b.Op(spirv.OpGroupNonUniformIAdd, b.Uint(32), b.U32(3), spirv.GroupOperationClusteredReduce, b.U32(1), b.U32(4))
		})
	}},
	{verify.CodeOperand, spirv.OpGroupNonUniformIAdd, 0, "power of two", func(b *builder) {
		b.Capability(spirv.CapabilityGroupNonUniformClustered)
		kernel(b, func() {
			b.Op(spirv.OpGroupNonUniformIAdd, b.Uint(32), b.U32(3), spirv.GroupOperationClusteredReduce, b.U32(1), b.U32(6))
		})
	}},
	{verify.CodeOperand, spirv.OpGroupNonUniformQuadSwap, 0, "from 0 to 2", func(b *builder) {
		b.Capability(spirv.CapabilityGroupNonUniformQuad)
		kernel(b, func() { b.Op(spirv.OpGroupNonUniformQuadSwap, b.Uint(32), b.U32(3), b.U32(1), b.U32(3)) })
	}},
	{verify.CodeMemory, spirv.OpFunction, 0, "control", func(b *builder) {
		main := b.ID()
		b.Do(spirv.OpFunction, b.Void(), main, 0x10000, b.FuncType(b.Void()))
		b.Do(spirv.OpLabel, b.ID())
		b.Do(spirv.OpReturn)
		b.Do(spirv.OpFunctionEnd)
		b.Compute(main, "main", 1, 1, 1)
	}},
	{verify.CodeBinding, spirv.OpVariable, 1, "binding 30 of set 2", func(b *builder) {
		u32s(b, 1)
		v := b.Global(spirv.StorageClassStorageBuffer, b.Block([]uint32{0}, b.Uint(32)))
		b.Decorate(v, spirv.DecorationDescriptorSet, 2)
		b.Decorate(v, spirv.DecorationBinding, 30)
		empty(b)
	}},
	{verify.CodeBinding, spirv.OpVariable, 0, "binding 32", func(b *builder) { u32s(b, 32); empty(b) }},
	{verify.CodeBinding, spirv.OpVariable, 0, "array of buffers", func(b *builder) {
		b.Global(spirv.StorageClassStorageBuffer, b.Array(b.Block([]uint32{0}, b.Uint(32)), b.Spec(9, b.Uint(32), 2), 0))
		empty(b)
	}},
	{verify.CodeBinding, spirv.OpVariable, 1, "of 2 buffers already", func(b *builder) {
		buffers(b, 2)
		b.Buffer(0, b.Uint(32), 4)
		empty(b)
	}},
	{verify.CodeBinding, spirv.OpLoad, 0, "as a whole", func(b *builder) {
		v, t := buffers(b, 2)
		kernel(b, func() { b.Load(t, v) })
	}},
	{verify.CodeChain, spirv.OpAccessChain, 0, "no buffer 2", func(b *builder) {
		v, _ := buffers(b, 2)
		kernel(b, func() { b.Access(spirv.StorageClassStorageBuffer, b.Uint(32), v, b.U32(2), b.U32(0)) })
	}},
	{verify.CodeInline, spirv.OpVariable, 1, "second", func(b *builder) {
		b.Push([]uint32{0}, b.Uint(32))
		b.Push([]uint32{0}, b.Uint(32))
		empty(b)
	}},
	{verify.CodeInline, spirv.OpVariable, 0, "limit is 256", func(b *builder) {
		b.Push([]uint32{0}, b.Array(b.Uint(32), b.U32(65), 4))
		empty(b)
	}},
	{verify.CodeBlock, spirv.OpExecutionMode, 0, "limit is 1024", func(b *builder) {
		f := b.Func(b.Void())
		b.Return()
		b.End()
		b.Compute(f, "main", 64, 32, 1)
	}},
	{verify.CodeSpecID, spirv.OpSpecConstantComposite, 0, "computed from another", func(b *builder) {
		u := b.Uint(32)
		x := b.Spec(7, u, 8)
		size := b.SpecComposite(b.Vec(u, 3), x, b.SpecOp(u, spirv.OpIMul, x, b.U32(2)), b.U32(1))
		b.Decorate(size, spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
		empty(b)
	}},
	{verify.CodeSpecID, spirv.OpVariable, 0, "StorageBuffer depends on the launch's block", func(b *builder) {
		u := b.Uint(32)
		x := b.Spec(7, u, 8)
		size := b.SpecComposite(b.Vec(u, 3), x, b.U32(1), b.U32(1))
		b.Decorate(size, spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
		b.BufferOf(0, b.Block([]uint32{0}, b.Array(u, x, 4)))
		empty(b)
	}},
	{verify.CodeSpecID, spirv.OpLoad, 0, "size is the launch's", func(b *builder) {
		u := b.Uint(32)
		x := b.Spec(7, u, 8)
		size := b.SpecComposite(b.Vec(u, 3), x, b.U32(1), b.U32(1))
		b.Decorate(size, spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
		t := b.Array(u, x, 0)
		s := b.Shared(t)
		kernel(b, func() { b.Load(t, s) })
	}},
	{verify.CodeSpecOp, spirv.OpSpecConstantOp, 0, "division by zero", func(b *builder) {
		b.SpecOp(b.Uint(32), spirv.OpUDiv, b.U32(1), b.Spec(9, b.Uint(32), 0))
		empty(b)
	}},
	{verify.CodeDeep, spirv.OpTypeStruct, 16, "deeper", func(b *builder) {
		t := b.Uint(32)
		for range 20 {
			t = b.Struct(t)
		}
		empty(b)
	}},
	{verify.CodeLarge, spirv.OpLoad, 0, "limit is 16384", func(b *builder) {
		t := b.Array(b.Uint(32), b.U32(5000), 0)
		s := b.Shared(t)
		kernel(b, func() { b.Load(t, s) })
	}},
	{verify.CodeExpansion, spirv.OpFunction, -1, "calls expanded", func(b *builder) {
		var f id
		for i := range 40 {
			g := b.Func(b.Void())
			for range min(i, 2) {
				b.Call(b.Void(), f)
			}
			b.Return()
			b.End()
			f = g
		}
		kernel(b, func() { b.Call(b.Void(), f) })
	}},
}
