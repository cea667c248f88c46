package verify

import (
	"fmt"
	"math/bits"

	"capgpu/program"
	"capgpu/program/spirv"
)

// featureSet has a bit for each of featureNames.
type featureSet uint16

const (
	usesVote featureSet = 1 << iota
	usesBallot
	usesShuffle
	usesArith
	usesF16
	usesI8
	usesF64
	usesI64
	usesI64Atomics
	usesF32Atomics
	usesF16Arith
	usesI8Arith
	usesI16Arith
	usesClustered
	usesQuad
	usesDot
)

var featureNames = []program.Feature{
	program.FeatureSubgroupVote, program.FeatureSubgroupBallot, program.FeatureSubgroupShuffle, program.FeatureSubgroupArith,
	program.FeatureF16Storage, program.FeatureI8Storage, program.FeatureF64, program.FeatureI64,
	program.FeatureI64Atomics, program.FeatureF32Atomics,
	program.FeatureF16, program.FeatureI8, program.FeatureI16, program.FeatureSubgroupCluster, program.FeatureSubgroupQuad, program.FeatureDot,
}

// note records the device features that a valid instruction needs.
func (fn *function) note(v *verifier, in *spirv.Inst) {
	switch op := in.Op; {
	case op == spirv.OpControlBarrier:
		fn.barriers = true

	case op < spirv.OpAtomicLoad:
	case op <= spirv.OpAtomicXor || op == spirv.OpAtomicFAddEXT:
		fn.atomics = append(fn.atomics, in)
		e := v.info(in.Arg(0)).typ.elem
		if e.width == 64 {
			fn.features |= usesI64Atomics
		}
		if e.kind == kFloat && (op == spirv.OpAtomicFAddEXT || op == spirv.OpAtomicExchange) {
			fn.features |= usesF32Atomics
		}

	case op >= spirv.OpSDot && op <= spirv.OpSUDotAccSat:
		fn.features |= usesDot
	case op >= spirv.OpGroupNonUniformElect && op <= spirv.OpGroupNonUniformAllEqual:
		fn.features |= usesVote
	case op >= spirv.OpGroupNonUniformBroadcast && op <= spirv.OpGroupNonUniformBallotFindMSB:
		fn.features |= usesBallot

	case op >= spirv.OpGroupNonUniformShuffle && op <= spirv.OpGroupNonUniformShuffleDown:
		fn.features |= usesShuffle
	case op >= spirv.OpGroupNonUniformIAdd && op <= spirv.OpGroupNonUniformLogicalXor:
		fn.features |= usesArith
		if spirv.GroupOperation(in.Args[1]) == spirv.GroupOperationClusteredReduce {
			fn.features |= usesClustered
		}
	case op == spirv.OpGroupNonUniformQuadBroadcast || op == spirv.OpGroupNonUniformQuadSwap:
		fn.features |= usesQuad
	}
}

// calls refuses recursion, adds up along calls, and finds the part that the entry
// point reaches.
func (v *verifier) calls() *program.Refusal {
	if r := v.sortCalls(); r != nil {
		return r
	}

	var entry *function
	for _, i := range v.reached.order {
		fn := &v.functions[i]
		var deepest uint64
		for _, c := range fn.calls {
			callee := &v.functions[c.callee]
			fn.instructions = min(huge, fn.instructions+callee.instructions)
			fn.registers = min(huge, fn.registers+callee.registers)
			deepest = max(deepest, callee.stack)
		}
		if fn.stack = min(huge, fn.stack+deepest); fn.f == v.iface.entry {
			entry = fn
		}
	}

	in := &entry.f.Def
	if entry.stack += v.iface.private; entry.stack > uint64(v.lim.StackBytes) {
		return v.refuse(CodeStack, in, "%d bytes of private memory along the deepest path of calls; the limit is %d", entry.stack, v.lim.StackBytes)
	}
	if entry.instructions > v.lim.Instructions {
		return v.refuse(CodeExpansion, in, "%d instructions with calls expanded; the limit is %d", entry.instructions, v.lim.Instructions)
	}
	if entry.registers > v.lim.RegisterBytes {
		return v.refuse(CodeExpansion, in, "%d bytes of values with calls expanded; the limit is %d", entry.registers, v.lim.RegisterBytes)
	}

	entry.reached = true
	for i := len(v.reached.order) - 1; i >= 0; i-- {
		if fn := &v.functions[v.reached.order[i]]; fn.reached {
			for _, c := range fn.calls {
				v.functions[c.callee].reached = true
			}
			if r := v.gather(fn); r != nil {
				return r
			}
		}
	}

	return v.sharedMemory()
}

// sortCalls orders the functions, callees first, without recursion: a hostile
// chain of calls is as long as the module.
func (v *verifier) sortCalls() *program.Refusal {
	const (
		unseen = iota
		open
		done
	)

	n := len(v.functions)
	state := make([]uint8, n)
	next := make([]int32, n)
	v.reached.order = make([]int32, 0, n)
	var stack []int32
	for i := range v.functions {
		if state[i] != unseen {
			continue
		}

		state[i] = open
		stack = append(stack, int32(i))
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			fn := &v.functions[at]
			if int(next[at]) == len(fn.calls) {
				state[at] = done
				v.reached.order = append(v.reached.order, at)
				stack = stack[:len(stack)-1]
				continue
			}

			c := fn.calls[next[at]]
			next[at]++
			switch state[c.callee] {
			case open:
				return v.refuse(CodeRecursion, c.in, "%s calls itself, directly or through others", v.m.Name(v.functions[c.callee].f.ID()))
			case unseen:
				state[c.callee] = open
				stack = append(stack, c.callee)
			}
		}
	}

	return nil
}

// gather adds a reached function's uses to the program's.
func (v *verifier) gather(fn *function) *program.Refusal {
	v.reached.features |= fn.features
	if fn.bits&hasF64 != 0 {
		v.reached.features |= usesF64
	}
	if fn.bits&hasI64 != 0 {
		v.reached.features |= usesI64
	}

	for i := range v.iface.buffers {
		v.iface.buffers[i].use |= fn.use[i]
	}

	for _, id := range fn.globals {
		i := v.info(id)
		if !v.declaredUse(i) { // one of several entry points reaches it
			return v.refuse(CodeInterface, &fn.f.Def, "it uses %%%d, which is not in the entry point's interface", id)
		}
		switch i.typ.class {
		case spirv.StorageClassWorkgroup:
			v.iface.shared[i.num].used = true
		case spirv.StorageClassStorageBuffer, spirv.StorageClassUniform:
			for b := range bufferCount(i.typ.elem) {
				v.iface.buffers[int(i.num)+b].used = true
			}
		}
	}

	for _, in := range fn.atomics {
		if v.info(in.Arg(0)).typ.class == spirv.StorageClassWorkgroup {
			continue
		}
		sort := atomicOrder[in.Op]
		used := in.Result != 0 && v.ids[in.Result].flags&isUsed != 0
		if used || sort == 0 && in.Op != spirv.OpAtomicLoad {
			sort = ordered
		}
		for at := v.reachOf(in.Arg(0)).buffers; at != 0; at &= at - 1 {
			v.iface.buffers[bits.TrailingZeros32(at)].orders |= sort
		}
	}

	return nil
}

// orderDependent reports whether the order of workgroups may show.
func (v *verifier) orderDependent() bool {
	for i := range v.iface.buffers {
		if bits.OnesCount16(v.iface.buffers[i].orders) > 1 {
			return true
		}
	}
	return false
}

// sharedMemory sums up the shared variables that the entry point reaches.
func (v *verifier) sharedMemory() *program.Refusal {
	var dynamic *spirv.Inst
	for i := range v.iface.shared {
		x := &v.iface.shared[i]
		if !x.used {
			continue
		}

		if x.typ.dynamic {
			if dynamic != nil {
				return v.refuse(CodeSharedDynamic, x.in, "a second dynamic array in shared memory")
			}
			if dynamic = x.in; x.typ.kind != kArray || x.typ.elem.dynamic {
				return v.refuse(CodeSpecID, x.in, "the dynamic array is inside something else")
			}
			v.reached.dynamicElement = roundUp(x.typ.elem.bytes, x.typ.elem.align)
			continue
		}

		v.reached.sharedBytes = roundUp(v.reached.sharedBytes, max(4, x.typ.align))
		if v.reached.sharedBytes += x.typ.bytes; v.reached.sharedBytes > uint64(v.lim.SharedBytes) {
			return v.refuse(CodeSharedSize, x.in, "%d bytes of static shared memory; the limit is %d", v.reached.sharedBytes, v.lim.SharedBytes)
		}
	}

	v.reached.sharedBytes = roundUp(v.reached.sharedBytes, 4)
	if v.reached.dynamicElement > uint64(v.lim.SharedBytes) {
		return v.refuse(CodeSharedSize, dynamic, "elements of %d bytes in shared memory; the limit is %d", v.reached.dynamicElement, v.lim.SharedBytes)
	}

	return nil
}

// calledFrom adds to a refusal inside a function that the entry point may call where
// that is called: the clause of the Abstract Device Machine calls such a function a
// portable procedure, and its use E-GPU-4017.
func (v *verifier) calledFrom(callee *spirv.Function, r *program.Refusal) {
	for _, f := range v.m.Functions {
		for _, b := range f.Blocks {
			for i := range b.Insts {
				if in := &b.Insts[i]; in.Op == spirv.OpFunctionCall && in.Arg(0) == callee.ID() {
					r.Message += fmt.Sprintf(" (E-GPU-4017: %s is called at byte %d", v.m.Name(callee.ID()), in.Off)
					if s := v.m.Source(in.Line); s != "" {
						r.Message += ", " + s
					}
					r.Message += ")"
					return
				}
			}
		}
	}
}
