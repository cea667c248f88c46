package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// pointer is operand i as a pointer; nil, and a refusal, if it is none.
func (v *verifier) pointer(in *spirv.Inst, i int) (*typ, *program.Refusal) {
	p := v.arg(in, i)
	if p.kind != kPointer {
		return nil, v.badOperand(in, i, "a pointer")
	}
	return p, nil
}

// touch notes that the code reads or writes through the pointer, and refuses what
// its memory does not allow.
func (v *verifier) touch(in *spirv.Inst, id spirv.ID, p *typ, access program.Access) *program.Refusal {
	i := v.info(id)
	if access&program.Write != 0 {
		v.stored(id)
		if p.class == spirv.StorageClassInput || p.class == spirv.StorageClassPushConstant {
			return v.refuse(CodeAccess, in, "a write to storage class %v", p.class)
		}
		if i.flags&noWrite != 0 {
			return v.refuse(CodeAccess, in, "a write to what is NonWritable")
		}
	}
	if access&program.Read != 0 && i.flags&noRead != 0 {
		return v.refuse(CodeAccess, in, "a read of what is NonReadable")
	}
	if p.class == spirv.StorageClassStorageBuffer || p.class == spirv.StorageClassUniform {
		if b := v.info(i.root).num; b >= 0 {
			v.functions[v.fn-1].use[b] |= access
		}
	}
	return nil
}

// How often a variable of a function is written, in idInfo.num.
const (
	neverStored = iota
	onceStored
	oftenStored
)

func (v *verifier) stored(pointer spirv.ID) {
	x := v.info(v.info(pointer).root)
	if x.what == isVariable && x.fn != 0 && x.num < oftenStored {
		x.num++
	}
}

func load(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	p, r := v.pointer(in, 0)
	if r != nil {
		return r
	}
	if p.elem != t {
		return v.badResult(in, "what the pointer points to")
	}
	if r := v.memoryOperands(in, 1, p, false); r != nil {
		return r
	}
	return v.touch(in, in.Arg(0), p, program.Read)
}

func store(v *verifier, in *spirv.Inst, _ *typ) *program.Refusal {
	p, r := v.pointer(in, 0)
	if r != nil {
		return r
	}
	if a := v.arg(in, 1); a != p.elem || !a.value() {
		return v.badOperand(in, 1, "what the pointer points to")
	}
	if r := v.memoryOperands(in, 2, p, true); r != nil {
		return r
	}
	return v.touch(in, in.Arg(0), p, program.Write)
}

// memoryOperands checks the optional memory operands from argument i on.
func (v *verifier) memoryOperands(in *spirv.Inst, i int, p *typ, write bool) *program.Refusal {
	if len(in.Args) <= i {
		return nil
	}
	mask := spirv.MemoryAccess(in.Args[i])
	i++
	const known = spirv.MemoryAccessVolatile | spirv.MemoryAccessAligned | spirv.MemoryAccessNontemporal |
		spirv.MemoryAccessMakePointerAvailable | spirv.MemoryAccessMakePointerVisible | spirv.MemoryAccessNonPrivatePointer
	const model = spirv.MemoryAccessMakePointerAvailable | spirv.MemoryAccessMakePointerVisible | spirv.MemoryAccessNonPrivatePointer
	if mask&^known != 0 {
		return v.refuse(CodeMemory, in, "memory operands %v", mask)
	}
	if mask&model != 0 && !v.vulkan {
		return v.refuse(CodeNeeds, in, "memory operands %v need the memory model Vulkan", mask)
	}
	if mask&model != 0 && p.class != spirv.StorageClassStorageBuffer && p.class != spirv.StorageClassUniform && p.class != spirv.StorageClassWorkgroup {
		return v.refuse(CodeOperand, in, "memory operands %v for storage class %v", mask, p.class)
	}
	if mask&spirv.MemoryAccessAligned != 0 {
		if a := uint32(in.Arg(i)); a == 0 || a&(a-1) != 0 {
			return v.refuse(CodeOperand, in, "an alignment of %d", a)
		}
		i++
	}
	for _, bit := range []spirv.MemoryAccess{spirv.MemoryAccessMakePointerAvailable, spirv.MemoryAccessMakePointerVisible} {
		if mask&bit == 0 {
			continue
		}
		if write != (bit == spirv.MemoryAccessMakePointerAvailable) || mask&spirv.MemoryAccessNonPrivatePointer == 0 {
			return v.refuse(CodeOperand, in, "memory operands %v", mask)
		}
		if _, r := v.scope(in, i); r != nil {
			return r
		}
		i++
	}
	return nil
}

func accessChain(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	p, r := v.pointer(in, 0)
	if r != nil {
		return r
	}
	base := v.info(in.Arg(0))
	flags := base.flags & (noWrite | noRead)
	e := p.elem
	for i := 1; i < len(in.Args); i++ {
		switch e.kind {
		case kStruct:
			n, ok := v.literal(in.Arg(i))
			if !ok {
				return v.refuse(CodeChain, in, "the member %%%d is no OpConstant", in.Arg(i))
			}
			if n >= uint64(len(e.members)) {
				return v.refuse(CodeChain, in, "there is no member %d", n)
			}
			if e.layout != nil {
				flags |= e.layout.flags[n]
			}
			e = e.members[n]
		case kVector, kArray, kRuntimeArray:
			if r := v.index(in, i); r != nil {
				return r
			}
			e = e.elem
		default:
			return v.refuse(CodeChain, in, "index %d into a scalar", i-1)
		}
	}
	if t.kind != kPointer || t.class != p.class || t.elem != e {
		return v.badResult(in, "a pointer to the part")
	}
	v.root, v.rootFlags = base.root, flags
	return nil
}

func arrayLength(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.isScalar(kInt) || t.width != 32 || t.signed {
		return v.badResult(in, "an unsigned 32-bit integer")
	}
	p, r := v.pointer(in, 0)
	if r != nil {
		return r
	}
	if p.elem.kind != kStruct || len(p.elem.members) == 0 {
		return v.badOperand(in, 0, "a pointer to a struct")
	}
	last := len(p.elem.members) - 1
	if p.elem.members[last].kind != kRuntimeArray || in.Args[1] != uint32(last) {
		return v.refuse(CodeOperand, in, "member %d is not the array without a size at the end", in.Args[1])
	}
	return nil
}

// atomicOrder are sorts of atomic operations on global memory that commute among
// themselves, but not with the others.
var atomicOrder = map[spirv.Opcode]uint16{
	spirv.OpAtomicIIncrement: 1, spirv.OpAtomicIDecrement: 1, spirv.OpAtomicIAdd: 1, spirv.OpAtomicISub: 1,
	spirv.OpAtomicSMin: 2, spirv.OpAtomicUMin: 4, spirv.OpAtomicSMax: 8, spirv.OpAtomicUMax: 16,
	spirv.OpAtomicAnd: 32, spirv.OpAtomicOr: 64, spirv.OpAtomicXor: 128,
}

// ordered is the sort of operations that commute with none, not even themselves:
// two bits, so that one of them is two sorts.
const ordered = 256 | 512

func atomic(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	p, r := v.pointer(in, 0)
	if r != nil {
		return r
	}
	switch p.class {
	case spirv.StorageClassStorageBuffer, spirv.StorageClassUniform, spirv.StorageClassWorkgroup:
	default:
		return v.refuse(CodeAtomicMemory, in, "an atomic operation in storage class %v; it needs global or shared memory", p.class)
	}
	e := p.elem
	float := in.Op == spirv.OpAtomicFAddEXT
	either := in.Op == spirv.OpAtomicLoad || in.Op == spirv.OpAtomicStore || in.Op == spirv.OpAtomicExchange
	switch {
	case e.kind != kInt && e.kind != kFloat:
		return v.refuse(CodeAtomicPointee, in, "an atomic operation on something other than a number")
	case e.width < 32 || e.kind == kFloat && e.width != 32:
		return v.refuse(CodeAtomicType, in, "an atomic operation on %d bits", e.width)
	case !either && float != (e.kind == kFloat):
		return v.refuse(CodeAtomicPointee, in, "the operation is not for this type")
	case e.width == 64 && !v.caps[spirv.CapabilityInt64Atomics]:
		return v.refuse(CodeNeeds, in, "64-bit atomic operations need capability Int64Atomics")
	}
	if t != nil && t != e {
		return v.badResult(in, "what the pointer points to")
	}
	values := 3
	if in.Op == spirv.OpAtomicCompareExchange {
		values = 4
	}
	for i := values; i < len(in.Args); i++ {
		if v.arg(in, i) != e {
			return v.badOperand(in, i, "what the pointer points to")
		}
	}
	scope, r := v.scope(in, 1)
	if r != nil {
		return r
	}
	if scope == spirv.ScopeCrossDevice {
		v.warn(WarnSystem, in, "an atomic operation of system scope is done with device scope, and is visible to the host when the launch has ended")
	}
	for i := 2; i < values; i++ {
		if r := v.semantics(in, i, scope); r != nil {
			return r
		}
	}
	access := program.ReadWrite
	switch in.Op {
	case spirv.OpAtomicLoad:
		access = program.Read
	case spirv.OpAtomicStore:
		access = program.Write
	}
	return v.touch(in, in.Arg(0), p, access)
}

// scope is a memory scope: an OpConstant.
func (v *verifier) scope(in *spirv.Inst, i int) (spirv.Scope, *program.Refusal) {
	if t := v.arg(in, i); !t.isScalar(kInt) || t.width != 32 {
		return 0, v.badOperand(in, i, "a scope: a 32-bit integer")
	}
	n, ok := v.literal(in.Arg(i))
	if !ok {
		return 0, v.badOperand(in, i, "a scope: an OpConstant")
	}
	switch s := spirv.Scope(n); s {
	case spirv.ScopeCrossDevice, spirv.ScopeWorkgroup, spirv.ScopeSubgroup, spirv.ScopeInvocation:
		return s, nil
	case spirv.ScopeDevice:
		if v.vulkan && !v.caps[spirv.CapabilityVulkanMemoryModelDeviceScope] {
			return 0, v.refuse(CodeNeeds, in, "scope Device needs capability VulkanMemoryModelDeviceScope")
		}
		return s, nil
	case spirv.ScopeQueueFamily:
		if v.vulkan {
			return s, nil
		}
	}
	return 0, v.refuse(CodeScope, in, "scope %v is outside the profile", spirv.Scope(n))
}

const (
	orders = spirv.MemorySemanticsAcquire | spirv.MemorySemanticsRelease | spirv.MemorySemanticsAcquireRelease | spirv.MemorySemanticsSequentiallyConsistent
	// memories are the kinds of memory that semantics are about. Vulkan compilers
	// name kinds that a kernel has not; those say nothing.
	memories = spirv.MemorySemanticsUniformMemory | spirv.MemorySemanticsWorkgroupMemory | spirv.MemorySemanticsImageMemory | spirv.MemorySemanticsOutputMemory
	ignored  = spirv.MemorySemanticsSubgroupMemory | spirv.MemorySemanticsCrossWorkgroupMemory | spirv.MemorySemanticsAtomicCounterMemory
	modelled = spirv.MemorySemanticsOutputMemory | spirv.MemorySemanticsMakeAvailable | spirv.MemorySemanticsMakeVisible
)

// semantics checks memory semantics: an OpConstant with at most one order, and none
// in the scope of one lane.
func (v *verifier) semantics(in *spirv.Inst, i int, scope spirv.Scope) *program.Refusal {
	if t := v.arg(in, i); !t.isScalar(kInt) || t.width != 32 {
		return v.badOperand(in, i, "memory semantics: a 32-bit integer")
	}
	n, ok := v.literal(in.Arg(i))
	if !ok {
		return v.badOperand(in, i, "memory semantics: an OpConstant")
	}
	s := spirv.MemorySemantics(n)
	bad := func(why string) *program.Refusal {
		return v.refuse(CodeSemantics, in, "memory semantics %#x: %s", n, why)
	}
	order := s & orders
	switch {
	case s&^(orders|memories|ignored|modelled|spirv.MemorySemanticsVolatile) != 0:
		return bad("unknown bits")
	case scope == spirv.ScopeInvocation && s != 0:
		return bad("in the scope of one lane there is nothing to order")
	case order&(order-1) != 0:
		return bad("more than one order")
	case order == spirv.MemorySemanticsSequentiallyConsistent:
		return bad("sequential consistency, which Vulkan does not have")
	case s&modelled != 0 && !v.vulkan:
		return bad("for the memory model Vulkan")
	case s&spirv.MemorySemanticsMakeAvailable != 0 && order != spirv.MemorySemanticsRelease && order != spirv.MemorySemanticsAcquireRelease,
		s&spirv.MemorySemanticsMakeVisible != 0 && order != spirv.MemorySemanticsAcquire && order != spirv.MemorySemanticsAcquireRelease:
		return bad("an availability or visibility without its order")
	case s&spirv.MemorySemanticsVolatile != 0 && (!v.vulkan || in.Op == spirv.OpControlBarrier || in.Op == spirv.OpMemoryBarrier):
		return bad("volatile")
	case s&(spirv.MemorySemanticsMakeAvailable|spirv.MemorySemanticsMakeVisible) != 0 && s&memories == 0:
		return bad("an availability or visibility of no memory")
	}
	switch in.Op {
	case spirv.OpMemoryBarrier:
		if order == 0 {
			return bad("a fence without an order")
		}
		fallthrough
	case spirv.OpControlBarrier:
		if s != 0 && (order == 0 || s&memories == 0) {
			return bad("an order and a kind of memory belong together")
		}
	case spirv.OpAtomicLoad:
		if order == spirv.MemorySemanticsRelease || order == spirv.MemorySemanticsAcquireRelease {
			return bad("a load that releases")
		}
	case spirv.OpAtomicStore:
		if order == spirv.MemorySemanticsAcquire || order == spirv.MemorySemanticsAcquireRelease {
			return bad("a store that acquires")
		}
	case spirv.OpAtomicCompareExchange:
		if i == 3 && (order == spirv.MemorySemanticsRelease || order == spirv.MemorySemanticsAcquireRelease) {
			return bad("a comparison that fails and releases")
		}
	}
	return nil
}

func controlBarrier(v *verifier, in *spirv.Inst, _ *typ) *program.Refusal {
	execution, r := v.scope(in, 0)
	if r != nil {
		return r
	}
	if execution != spirv.ScopeWorkgroup && execution != spirv.ScopeSubgroup {
		return v.refuse(CodeScope, in, "a barrier of scope %v; the profile has Workgroup and Subgroup", execution)
	}
	memory, r := v.scope(in, 1)
	if r != nil {
		return r
	}
	return v.semantics(in, 2, memory)
}

func memoryBarrier(v *verifier, in *spirv.Inst, _ *typ) *program.Refusal {
	scope, r := v.scope(in, 0)
	if r != nil {
		return r
	}
	return v.semantics(in, 1, scope)
}
