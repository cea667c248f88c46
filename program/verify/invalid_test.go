package verify_test

import (
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

var invalidCases = []refused{
	{verify.CodeID, spirv.OpName, 0, "nothing defines", func(b *builder) { b.Name(b.ID(), "ghost"); empty(b) }},
	{verify.CodeID, spirv.OpIAdd, 0, "no value", func(b *builder) {
		kernel(b, func() { b.Op(spirv.OpIAdd, b.Uint(32), b.Uint(32), b.U32(1)) })
	}},
	{verify.CodeUse, spirv.OpIAdd, 0, "before it is defined", func(b *builder) {
		kernel(b, func() {
			later := b.ID()
			b.Op(spirv.OpIAdd, b.Uint(32), later, b.U32(1))
			b.Do(spirv.OpIAdd, b.Uint(32), later, b.U32(1), b.U32(1))
		})
	}},
	{verify.CodeUse, spirv.OpIAdd, 1, "does not dominate", func(b *builder) {
		kernel(b, func() {
			var x id
			b.If(b.BoolConst(true), func() bool { x = b.Op(spirv.OpIAdd, b.Uint(32), b.U32(1), b.U32(1)); return true }, nil)
			b.Op(spirv.OpIAdd, b.Uint(32), x, b.U32(1))
		})
	}},
	{verify.CodeUse, spirv.OpNot, 0, "another function", func(b *builder) {
		b.Func(b.Void())
		x := b.Op(spirv.OpIAdd, b.Uint(32), b.U32(1), b.U32(1))
		b.Return()
		b.End()
		kernel(b, func() { b.Op(spirv.OpNot, b.Uint(32), x) })
	}},
	{verify.CodeDeclaration, spirv.OpTypeInt, 1, "declared before", func(b *builder) {
		b.Uint(32)
		b.Declare(spirv.OpTypeInt, b.ID(), 32, 0)
		empty(b)
	}},
	{verify.CodeDeclaration, spirv.OpTypeArray, 0, "length of 0", func(b *builder) { b.Array(b.Uint(32), b.U32(0), 0); empty(b) }},
	{verify.CodeConstant, spirv.OpConstantComposite, 0, "1 constituents of 2", func(b *builder) {
		b.Composite(b.Vec(b.Uint(32), 2), b.U32(1))
		empty(b)
	}},
	{verify.CodeResult, spirv.OpIAdd, 0, "of integers", func(b *builder) {
		kernel(b, func() { b.Op(spirv.OpIAdd, b.Float(32), b.F32(1), b.F32(1)) })
	}},
	{verify.CodeOperand, spirv.OpIAdd, 0, "of integers like the result", func(b *builder) {
		kernel(b, func() { b.Op(spirv.OpIAdd, b.Uint(32), b.F32(1), b.U32(1)) })
	}},
	{verify.CodeDecorated, spirv.OpDecorate, 0, "Block is not for", func(b *builder) {
		b.Decorate(b.Uint(32), spirv.DecorationBlock)
		empty(b)
	}},
	{verify.CodeDecorated, spirv.OpMemberDecorate, 1, "Offset twice", func(b *builder) {
		s := b.Block([]uint32{0}, b.Uint(32))
		b.MemberDecorate(s, 0, spirv.DecorationOffset, 0)
		b.BufferOf(0, s)
		empty(b)
	}},
	{verify.CodeNeeds, spirv.OpTypeInt, 0, "Int64", func(b *builder) { b.Uint(64); empty(b) }},
	{verify.CodeNeeds, spirv.OpCapability, -1, "8bit_storage", func(b *builder) {
		b.Capability(spirv.CapabilityStorageBuffer8BitAccess)
		empty(b)
	}},
	{verify.CodeNeeds, spirv.OpGroupNonUniformElect, 0, "GroupNonUniform", func(b *builder) {
		kernel(b, func() { b.Op(spirv.OpGroupNonUniformElect, b.Bool(), b.U32(3)) })
	}},
	{verify.CodeInterface, spirv.OpLoad, 0, "not in the entry point's interface", func(b *builder) {
		t := b.Vec(b.Uint(32), 3)
		v := b.Global(spirv.StorageClassInput, t)
		b.Decorate(v, spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupId)
		kernel(b, func() { b.Load(t, v) })
	}},
	{verify.CodeNoMode, spirv.OpEntryPoint, 0, "no LocalSize", func(b *builder) {
		f := b.Func(b.Void())
		b.Return()
		b.End()
		b.Compute(f, "main", 0, 0, 0)
	}},
	{verify.CodeNoMode, spirv.OpExecutionMode, 1, "second", func(b *builder) {
		b.Mode(kernel(b, func() {}), spirv.ExecutionModeLocalSize, 1, 1, 1)
	}},
	{verify.CodeLayout, spirv.OpTypeStruct, 0, "without Offset", func(b *builder) { b.BufferOf(0, b.Block(nil, b.Uint(32))); empty(b) }},
	{verify.CodeLayout, spirv.OpTypeStruct, 0, "overlaps", func(b *builder) {
		b.BufferOf(0, b.Block([]uint32{0, 4}, b.Vec(b.Uint(32), 2), b.Uint(32)))
		empty(b)
	}},
	{verify.CodeLayout, spirv.OpTypeStruct, 0, "aligned to 4", func(b *builder) {
		b.BufferOf(0, b.Block([]uint32{2}, b.Uint(32)))
		empty(b)
	}},
	{verify.CodeLayout, spirv.OpTypeRuntimeArray, 0, "without ArrayStride", func(b *builder) { b.Buffer(0, b.Uint(32), 0); empty(b) }},
	{verify.CodeLayout, spirv.OpDecorate, 0, "stride of 2", func(b *builder) { b.Buffer(0, b.Uint(32), 2); empty(b) }},
	{verify.CodeVariable, spirv.OpVariable, 0, "no pointer type", func(b *builder) {
		b.Declare(spirv.OpVariable, b.Uint(32), b.ID(), spirv.StorageClassPrivate)
		empty(b)
	}},
	{verify.CodeChain, spirv.OpAccessChain, 0, "no member 1", func(b *builder) {
		v, _ := u32s(b, 0)
		kernel(b, func() { b.Access(spirv.StorageClassStorageBuffer, b.Uint(32), v, b.U32(1), b.U32(0)) })
	}},
	{verify.CodeAccess, spirv.OpStore, 0, "NonWritable", func(b *builder) {
		v, first := u32s(b, 0)
		b.Decorate(v, spirv.DecorationNonWritable)
		kernel(b, func() { b.Store(first(), b.U32(1)) })
	}},
	{verify.CodeAccess, spirv.OpStore, 0, "PushConstant", func(b *builder) {
		v := b.Push([]uint32{0}, b.Uint(32))
		kernel(b, func() { b.Store(b.Access(spirv.StorageClassPushConstant, b.Uint(32), v, b.U32(0)), b.U32(1)) })
	}},
	{verify.CodeFunction, spirv.OpFunction, 0, "function type", func(b *builder) {
		main := b.ID()
		b.Do(spirv.OpFunction, b.Void(), main, 0, b.FuncType(b.Uint(32)))
		b.Do(spirv.OpLabel, b.ID())
		b.Do(spirv.OpReturn)
		b.Do(spirv.OpFunctionEnd)
		b.Compute(main, "main", 1, 1, 1)
	}},
	{verify.CodeCall, spirv.OpFunctionCall, 0, "1 arguments of 0", func(b *builder) {
		f := b.Func(b.Void())
		b.Return()
		b.End()
		kernel(b, func() { b.Call(b.Void(), f, b.U32(1)) })
	}},
	{verify.CodeReturn, spirv.OpReturn, 0, "no value is returned", func(b *builder) {
		b.Func(b.Uint(32))
		b.Return()
		b.End()
		empty(b)
	}},
	{verify.CodeSemantics, spirv.OpMemoryBarrier, 0, "without an order", func(b *builder) {
		kernel(b, func() { b.Do(spirv.OpMemoryBarrier, b.U32(1), b.U32(0x40)) })
	}},
}

// blocks is a kernel of blocks: the first is the entry. Each function writes one,
// given the labels of all.
func blocks(b *builder, n int, write func(i int, label []id)) {
	main := b.FuncHead(b.Void())
	label := make([]id, n)
	for i := range label {
		label[i] = b.ID()
	}
	for i := range label {
		b.Begin(label[i])
		write(i, label)
	}
	b.End()
	b.Compute(main, "main", 64, 1, 1)
}

var flowCases = []refused{
	{verify.CodePhi, spirv.OpPhi, 0, "2 values for 1 predecessors", func(b *builder) {
		blocks(b, 2, func(i int, l []id) {
			if i == 0 {
				b.Branch(l[1])
				return
			}
			b.Op(spirv.OpPhi, b.Uint(32), b.U32(1), l[0], b.U32(2), l[1])
			b.Return()
		})
	}},
	{verify.CodeBranch, spirv.OpBranch, 1, "entry block", func(b *builder) {
		blocks(b, 2, func(i int, l []id) { b.Branch(l[1-i]) })
	}},
	{verify.CodeNoMerge, spirv.OpBranchConditional, 0, "without OpSelectionMerge", func(b *builder) {
		blocks(b, 3, func(i int, l []id) {
			if i == 0 {
				b.BranchIf(b.BoolConst(true), l[1], l[2])
				return
			}
			b.Return()
		})
	}},
	{verify.CodeNoMerge, spirv.OpSwitch, 0, "switch", func(b *builder) {
		blocks(b, 2, func(i int, l []id) {
			if i == 0 {
				b.Do(spirv.OpSwitch, b.U32(1), l[1])
				return
			}
			b.Return()
		})
	}},
	{verify.CodeMerge, spirv.OpSelectionMerge, 0, "merge block", func(b *builder) {
		blocks(b, 2, func(i int, l []id) {
			if i == 0 {
				b.SelectionMerge(l[0])
				b.BranchIf(b.BoolConst(true), l[1], l[1])
				return
			}
			b.Return()
		})
	}},
	{verify.CodeLoop, spirv.OpBranch, 1, "branch back", func(b *builder) {
		blocks(b, 2, func(i int, l []id) { b.Branch(l[1]) })
	}},
	{verify.CodeLoop, spirv.OpLoopMerge, 0, "no branch back", func(b *builder) {
		blocks(b, 4, func(i int, l []id) {
			switch i {
			case 0:
				b.Branch(l[1])
			case 1:
				b.LoopMerge(l[3], l[2])
				b.Branch(l[3])
			case 2:
				b.Do(spirv.OpUnreachable)
			default:
				b.Return()
			}
		})
	}},
	{verify.CodeDead, spirv.OpLabel, 1, "nothing leads to", func(b *builder) {
		blocks(b, 3, func(i int, l []id) {
			if i == 1 {
				b.SelectionMerge(l[2])
				b.BranchIf(b.BoolConst(true), l[2], l[2])
				return
			}
			b.Return()
		})
	}},
	{verify.CodeExit, spirv.OpBranch, 0, "leaves its construct", func(b *builder) {
		blocks(b, 5, func(i int, l []id) {
			switch i {
			case 0: // if { if { goto the outer merge } }
				b.SelectionMerge(l[4])
				b.BranchIf(b.BoolConst(true), l[1], l[4])
			case 1:
				b.SelectionMerge(l[3])
				b.BranchIf(b.BoolConst(true), l[2], l[3])
			case 2:
				b.Branch(l[4])
			case 3:
				b.Branch(l[4])
			default:
				b.Return()
			}
		})
	}},
	{verify.CodeSwitch, spirv.OpBranch, 0, "not the next case", func(b *builder) {
		blocks(b, 5, func(i int, l []id) {
			switch i {
			case 0:
				b.SelectionMerge(l[4])
				b.Do(spirv.OpSwitch, b.U32(1), l[4], 1, l[1], 2, l[2], 3, l[3])
			case 1:
				b.Branch(l[3])
			case 4:
				b.Return()
			default:
				b.Branch(l[4])
			}
		})
	}},
	{verify.CodeSwitch, spirv.OpSwitch, 0, "a case twice", func(b *builder) {
		blocks(b, 2, func(i int, l []id) {
			if i == 0 {
				b.SelectionMerge(l[1])
				b.Do(spirv.OpSwitch, b.U32(1), l[1], 1, l[1], 1, l[1])
				return
			}
			b.Return()
		})
	}},
	{verify.CodeOrder, spirv.OpLabel, 1, "dominates it", func(b *builder) {
		main := b.FuncHead(b.Void())
		first, second, third := b.ID(), b.ID(), b.ID()
		b.Begin(first)
		b.Branch(third)
		b.Begin(second)
		b.Return()
		b.Begin(third)
		b.Branch(second)
		b.End()
		b.Compute(main, "main", 1, 1, 1)
	}},
	{verify.CodeDeep, spirv.OpSelectionMerge, -1, "deeper", func(b *builder) {
		kernel(b, func() {
			var nest func(n int)
			nest = func(n int) {
				if n > 0 {
					b.If(b.BoolConst(true), func() bool { nest(n - 1); return true }, nil)
				}
			}
			nest(129)
		})
	}},
}

// copies is a kernel that copies between shared variables, with memory operands.
func copies(b *builder, version uint32, operands ...any) {
	vulkanModel(b, version)
	x, y := b.Shared(b.Uint(32)), b.Shared(b.Uint(32))
	kernel(b, func() { b.Do(spirv.OpCopyMemory, append([]any{x, y}, operands...)...) })
}

// vulkanModel is a module of a version from 1.5 on with the memory model Vulkan.
func vulkanModel(b *builder, version uint32) {
	b.Version = version
	if version >= 0x10500 {
		b.Capability(spirv.CapabilityVulkanMemoryModel)
		b.Model(spirv.AddressingModelLogical, spirv.MemoryModelVulkan)
	}
}
