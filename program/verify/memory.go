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

// touch records that the code reads or writes through the pointer, and refuses
// accesses that its memory does not allow.
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

	if p.class == spirv.StorageClassStorageBuffer || p.class == spirv.StorageClassUniform {
		if v.info(i.root).what != isVariable {
			fn := &v.functions[v.cur.fn-1]
			fn.through = append(fn.through, through{in, id, access})
			return nil
		}
		b, n := v.bufferOf(id)
		if n > 1 || b >= 0 && i.member == 0 && v.info(i.root).typ.elem.kind == kArray {
			return v.refuse(CodeBinding, in, "an access to an array of buffers as a whole")
		}
		if b >= 0 {
			v.functions[v.cur.fn-1].use[b] |= access
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
	if t.kind == kPointer {
		v.flows = append(v.flows, edge{in.Result, v.info(in.Arg(0)).root})
	}
	if r := v.memoryOperands(in, 1, len(in.Args), loadModel, p); r != nil {
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
	if p.elem.kind == kPointer {
		if r := v.becomes(in, v.info(in.Arg(0)).root, in.Arg(1)); r != nil {
			return r
		}
	}
	if r := v.memoryOperands(in, 2, len(in.Args), storeModel, p); r != nil {
		return r
	}
	return v.touch(in, in.Arg(0), p, program.Write)
}

// copyMemory checks a load and a store in one. Memory operands are for both, or from
// SPIR-V 1.4 on first for the store and then for the load.
func copyMemory(v *verifier, in *spirv.Inst, _ *typ) *program.Refusal {
	to, r := v.pointer(in, 0)
	if r != nil {
		return r
	}
	from, r := v.pointer(in, 1)
	if r != nil {
		return r
	}

	switch t := to.elem; {
	case t != from.elem || !t.value():
		return v.badOperand(in, 1, "a pointer to what the first one points to")
	case t.kind == kPointer:
		v.flows = append(v.flows, edge{v.info(in.Arg(0)).root, v.info(in.Arg(1)).root})
	case t.bytes > uint64(v.lim.ValueBytes):
		return v.refuse(CodeLarge, in, "a value of %d bytes; the limit is %d", t.bytes, v.lim.ValueBytes)
	case t.launch:
		return v.refuse(CodeSpecID, in, "a value whose size is the launch's")
	}

	if second := in.SecondMask(); second == 0 {
		r = v.memoryOperands(in, 2, len(in.Args), bothModel, to, from)
	} else if v.m.Version < version14 {
		r = v.refuse(CodeNeeds, in, "memory operands for each of two pointers need SPIR-V 1.4")
	} else if r = v.memoryOperands(in, 2, second, storeModel, to); r == nil {
		r = v.memoryOperands(in, second, len(in.Args), loadModel, from)
	}
	if r != nil {
		return r
	}

	if r := v.touch(in, in.Arg(1), from, program.Read); r != nil {
		return r
	}
	fn := &v.functions[v.cur.fn-1]
	fn.registers += roundUp(to.elem.bytes, 4)
	fn.bits |= to.elem.bits
	return v.touch(in, in.Arg(0), to, program.Write)
}

// The memory operands of the memory model Vulkan that a load, a store, and a copy with
// one mask for both can have.
const (
	loadModel  = spirv.MemoryAccessMakePointerVisible | spirv.MemoryAccessNonPrivatePointer
	storeModel = spirv.MemoryAccessMakePointerAvailable | spirv.MemoryAccessNonPrivatePointer
	bothModel  = loadModel | storeModel
)

// memoryOperands checks a mask of memory operands, which is optional, and its own
// operands: arguments i to end-1. model are those of the memory model Vulkan that it
// may have, at are the pointers that it is for.
func (v *verifier) memoryOperands(in *spirv.Inst, i, end int, model spirv.MemoryAccess, at ...*typ) *program.Refusal {
	if i >= end {
		return nil
	}

	mask := spirv.MemoryAccess(in.Args[i])
	i++
	const plain = spirv.MemoryAccessVolatile | spirv.MemoryAccessAligned | spirv.MemoryAccessNontemporal
	switch {
	case mask&^(plain|bothModel) != 0:
		return v.refuse(CodeMemory, in, "memory operands %v", mask)
	case mask&bothModel != 0 && !v.vulkan:
		return v.refuse(CodeNeeds, in, "memory operands %v need the memory model Vulkan", mask)
	case mask&bothModel&^model != 0, mask&bothModel != 0 && mask&spirv.MemoryAccessNonPrivatePointer == 0:
		return v.refuse(CodeOperand, in, "memory operands %v", mask)
	}

	for _, p := range at {
		if mask&bothModel != 0 && p.class != spirv.StorageClassStorageBuffer && p.class != spirv.StorageClassUniform && p.class != spirv.StorageClassWorkgroup {
			return v.refuse(CodeOperand, in, "memory operands %v for storage class %v", mask, p.class)
		}
	}

	if mask&spirv.MemoryAccessAligned != 0 {
		if a := in.Args[i]; a == 0 || a&(a-1) != 0 {
			return v.refuse(CodeOperand, in, "an alignment of %d", a)
		}
		i++
	}

	for ; i < end; i++ { // of MakePointerAvailable and MakePointerVisible
		if _, r := v.scope(in, i); r != nil {
			return r
		}
	}

	return nil
}

func accessChain(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	p, r := v.pointer(in, 0)
	if r != nil {
		return r
	}
	return v.chain(in, t, p, 1)
}

// chain follows the indexes of an access chain, from argument first on.
func (v *verifier) chain(in *spirv.Inst, t, p *typ, first int) *program.Refusal {
	base := v.info(in.Arg(0))
	flags, member := base.flags&(noWrite|noRead|inMatrix), base.member
	e, open := p.elem, false // open: into a buffer that the run tells
	for i := first; i < len(in.Args); i++ {
		if i == 1 && e.kind == kArray && member == 0 && v.isBufferArray(base.root, e) {
			n, known, r := v.whichBuffer(in, e)
			if r != nil {
				return r
			}
			if open, e = !known, e.elem; known {
				member = uint8(1 + n)
			}
			continue
		}

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

		case kVector, kMatrix, kArray, kRuntimeArray:
			if r := v.index(in, i); r != nil {
				return r
			}
			if e.kind == kMatrix {
				flags |= inMatrix
			}
			e = e.elem

		default:
			return v.refuse(CodeChain, in, "index %d into a scalar", i-1)
		}
	}

	if t.kind != kPointer || t.class != p.class || t.elem != e {
		return v.badResult(in, "a pointer to the part")
	}

	v.cur.root, v.cur.rootFlags, v.cur.member = base.root, flags, member
	if open {
		v.opensBuffer(in, base)
		v.cur.root = 0 // resultOf makes it a root
	}
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
	if v.info(v.info(in.Arg(0)).root).what != isVariable {
		return v.refuse(CodePointer, in, "the length of an array in a buffer that is chosen when the program runs")
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

// atomicOrder are kinds of atomic operations on global memory that commute among
// themselves, but not with the others.
var atomicOrder = map[spirv.Opcode]uint16{
	spirv.OpAtomicIIncrement: 1, spirv.OpAtomicIDecrement: 1, spirv.OpAtomicIAdd: 1, spirv.OpAtomicISub: 1,
	spirv.OpAtomicSMin: 2, spirv.OpAtomicUMin: 4, spirv.OpAtomicSMax: 8, spirv.OpAtomicUMax: 16,
	spirv.OpAtomicAnd: 32, spirv.OpAtomicOr: 64, spirv.OpAtomicXor: 128,
}

// ordered is the kind of operations that commute with none, not even themselves:
// two bits, so that one of them is two kinds.
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
