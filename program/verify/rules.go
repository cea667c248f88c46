package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// rule is the requirement for an instruction. The check gets the result type, nil
// if the instruction has none, and takes operands by verifier.arg, which checks
// that they exist and dominate.
type rule struct {
	n     int              // arguments; anyCount: the check counts
	small bool             // it only moves and converts values, as storage of 8 and 16 bits needs
	needs spirv.Capability // 0 (Matrix, which Shader implies): none
	since uint32           // SPIR-V version
	check func(v *verifier, in *spirv.Inst, t *typ) *program.Refusal
}

const anyCount = -1

// rules has every instruction of function bodies that the profile allows, other
// than merges and terminators.
var rules = map[spirv.Opcode]*rule{}

// quick finds rules of the core's opcodes without hashing.
var quick [402]*rule

func ruleOf(op spirv.Opcode) *rule {
	if int(op) < len(quick) {
		return quick[op]
	}
	return rules[op]
}

func init() {
	type check = func(v *verifier, in *spirv.Inst, t *typ) *program.Refusal
	add := func(r rule, ops ...spirv.Opcode) {
		for _, op := range ops {
			rules[op] = &r
			if int(op) < len(quick) {
				quick[op] = &r
			}
		}
	}

	plain := func(n int, c check, ops ...spirv.Opcode) { add(rule{n: n, check: c}, ops...) }

	plain(1, intOp, spirv.OpSNegate, spirv.OpNot)
	plain(2, intOp, spirv.OpIAdd, spirv.OpISub, spirv.OpIMul, spirv.OpSDiv, spirv.OpSRem, spirv.OpSMod,
		spirv.OpBitwiseAnd, spirv.OpBitwiseOr, spirv.OpBitwiseXor)

	plain(2, unsignedOp, spirv.OpUDiv, spirv.OpUMod)
	plain(2, shiftOp, spirv.OpShiftLeftLogical, spirv.OpShiftRightLogical, spirv.OpShiftRightArithmetic)
	plain(2, carryOp, spirv.OpIAddCarry, spirv.OpISubBorrow, spirv.OpUMulExtended, spirv.OpSMulExtended)
	plain(4, bitField, spirv.OpBitFieldInsert)
	plain(3, bitField, spirv.OpBitFieldSExtract, spirv.OpBitFieldUExtract)
	plain(1, bitOp, spirv.OpBitReverse, spirv.OpBitCount)
	plain(1, floatOp, spirv.OpFNegate)
	plain(2, floatOp, spirv.OpFAdd, spirv.OpFSub, spirv.OpFMul, spirv.OpFDiv, spirv.OpFRem, spirv.OpFMod)
	plain(2, vectorTimesScalar, spirv.OpVectorTimesScalar)
	plain(2, dotOp, spirv.OpDot)
	dot := func(n int, ops ...spirv.Opcode) {
		add(rule{n: anyCount, small: true, needs: spirv.CapabilityDotProduct, check: func(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
			return integerDot(v, in, t, n)
		}}, ops...)
	}
	dot(2, spirv.OpSDot, spirv.OpUDot, spirv.OpSUDot)
	dot(3, spirv.OpSDotAccSat, spirv.OpUDotAccSat, spirv.OpSUDotAccSat)
	plain(2, matrixOp, spirv.OpMatrixTimesScalar, spirv.OpVectorTimesMatrix, spirv.OpMatrixTimesVector, spirv.OpMatrixTimesMatrix, spirv.OpOuterProduct)
	plain(1, matrixOp, spirv.OpTranspose)

	plain(2, intCompare, spirv.OpIEqual, spirv.OpINotEqual,
		spirv.OpULessThan, spirv.OpULessThanEqual, spirv.OpUGreaterThan, spirv.OpUGreaterThanEqual,
		spirv.OpSLessThan, spirv.OpSLessThanEqual, spirv.OpSGreaterThan, spirv.OpSGreaterThanEqual)

	plain(2, floatCompare, spirv.OpFOrdEqual, spirv.OpFUnordEqual, spirv.OpFOrdNotEqual, spirv.OpFUnordNotEqual,
		spirv.OpFOrdLessThan, spirv.OpFUnordLessThan, spirv.OpFOrdGreaterThan, spirv.OpFUnordGreaterThan,
		spirv.OpFOrdLessThanEqual, spirv.OpFUnordLessThanEqual, spirv.OpFOrdGreaterThanEqual, spirv.OpFUnordGreaterThanEqual)

	plain(1, floatCompare, spirv.OpIsNan, spirv.OpIsInf)
	plain(2, logicalOp, spirv.OpLogicalEqual, spirv.OpLogicalNotEqual, spirv.OpLogicalAnd, spirv.OpLogicalOr)
	plain(1, logicalOp, spirv.OpLogicalNot)
	plain(1, anyAll, spirv.OpAny, spirv.OpAll)
	add(rule{n: 3, small: true, check: selectOp}, spirv.OpSelect)

	plain(1, convertNumber, spirv.OpConvertFToS, spirv.OpConvertFToU, spirv.OpConvertSToF, spirv.OpConvertUToF)
	add(rule{n: 1, small: true, check: convertWidth}, spirv.OpUConvert, spirv.OpSConvert, spirv.OpFConvert)
	plain(1, quantize, spirv.OpQuantizeToF16)
	add(rule{n: 1, small: true, check: bitcast}, spirv.OpBitcast)

	add(rule{n: 0, small: true, check: undef}, spirv.OpUndef)
	add(rule{n: 1, small: true, check: copyObject}, spirv.OpCopyObject)
	add(rule{n: 1, small: true, since: version14, check: copyLogical}, spirv.OpCopyLogical)
	add(rule{n: anyCount, small: true, check: compositeConstruct}, spirv.OpCompositeConstruct)
	add(rule{n: anyCount, small: true, check: compositeExtract}, spirv.OpCompositeExtract)
	add(rule{n: anyCount, small: true, check: compositeInsert}, spirv.OpCompositeInsert)
	add(rule{n: 2, small: true, check: vectorExtractDynamic}, spirv.OpVectorExtractDynamic)
	add(rule{n: 3, small: true, check: vectorInsertDynamic}, spirv.OpVectorInsertDynamic)
	add(rule{n: anyCount, small: true, check: vectorShuffle}, spirv.OpVectorShuffle)

	add(rule{n: anyCount, small: true, check: load}, spirv.OpLoad)
	add(rule{n: anyCount, small: true, check: store}, spirv.OpStore)
	add(rule{n: anyCount, small: true, check: copyMemory}, spirv.OpCopyMemory)
	plain(anyCount, accessChain, spirv.OpAccessChain, spirv.OpInBoundsAccessChain)
	plain(anyCount, ptrAccessChain, spirv.OpPtrAccessChain)
	add(rule{n: 2, since: version14, check: ptrEqual}, spirv.OpPtrEqual, spirv.OpPtrNotEqual)
	plain(2, arrayLength, spirv.OpArrayLength)
	add(rule{n: anyCount, small: true, check: call}, spirv.OpFunctionCall)
	add(rule{n: anyCount, small: true, check: extended}, spirv.OpExtInst)

	add(rule{n: 3, small: true, check: atomic}, spirv.OpAtomicLoad, spirv.OpAtomicIIncrement, spirv.OpAtomicIDecrement)
	add(rule{n: 4, small: true, check: atomic}, spirv.OpAtomicStore, spirv.OpAtomicExchange, spirv.OpAtomicIAdd, spirv.OpAtomicISub,
		spirv.OpAtomicSMin, spirv.OpAtomicUMin, spirv.OpAtomicSMax, spirv.OpAtomicUMax,
		spirv.OpAtomicAnd, spirv.OpAtomicOr, spirv.OpAtomicXor)

	add(rule{n: 6, small: true, check: atomic}, spirv.OpAtomicCompareExchange)
	add(rule{n: 4, small: true, needs: spirv.CapabilityAtomicFloat32AddEXT, check: atomic}, spirv.OpAtomicFAddEXT)
	plain(3, controlBarrier, spirv.OpControlBarrier)
	plain(2, memoryBarrier, spirv.OpMemoryBarrier)

	nonUniform := func(n int, c check, needs spirv.Capability, ops ...spirv.Opcode) {
		add(rule{n: n, needs: needs, check: c}, ops...)
	}

	nonUniform(1, groupVote, spirv.CapabilityGroupNonUniform, spirv.OpGroupNonUniformElect)
	nonUniform(2, groupVote, spirv.CapabilityGroupNonUniformVote, spirv.OpGroupNonUniformAll, spirv.OpGroupNonUniformAny, spirv.OpGroupNonUniformAllEqual)
	nonUniform(3, groupMove, spirv.CapabilityGroupNonUniformBallot, spirv.OpGroupNonUniformBroadcast)
	nonUniform(2, groupMove, spirv.CapabilityGroupNonUniformBallot, spirv.OpGroupNonUniformBroadcastFirst)
	nonUniform(3, groupMove, spirv.CapabilityGroupNonUniformShuffle, spirv.OpGroupNonUniformShuffle, spirv.OpGroupNonUniformShuffleXor)
	nonUniform(3, groupMove, spirv.CapabilityGroupNonUniformShuffleRelative, spirv.OpGroupNonUniformShuffleUp, spirv.OpGroupNonUniformShuffleDown)
	nonUniform(anyCount, groupBallot, spirv.CapabilityGroupNonUniformBallot, spirv.OpGroupNonUniformBallot, spirv.OpGroupNonUniformInverseBallot,
		spirv.OpGroupNonUniformBallotBitExtract, spirv.OpGroupNonUniformBallotBitCount,
		spirv.OpGroupNonUniformBallotFindLSB, spirv.OpGroupNonUniformBallotFindMSB)

	nonUniform(3, groupQuad, spirv.CapabilityGroupNonUniformQuad, spirv.OpGroupNonUniformQuadBroadcast, spirv.OpGroupNonUniformQuadSwap)
	nonUniform(anyCount, groupArithmetic, 0,
		spirv.OpGroupNonUniformIAdd, spirv.OpGroupNonUniformFAdd, spirv.OpGroupNonUniformIMul, spirv.OpGroupNonUniformFMul,
		spirv.OpGroupNonUniformSMin, spirv.OpGroupNonUniformUMin, spirv.OpGroupNonUniformFMin,
		spirv.OpGroupNonUniformSMax, spirv.OpGroupNonUniformUMax, spirv.OpGroupNonUniformFMax,
		spirv.OpGroupNonUniformBitwiseAnd, spirv.OpGroupNonUniformBitwiseOr, spirv.OpGroupNonUniformBitwiseXor,
		spirv.OpGroupNonUniformLogicalAnd, spirv.OpGroupNonUniformLogicalOr, spirv.OpGroupNonUniformLogicalXor)
}

// foreignOps are instructions that have a code of the Abstract Device Machine.
var foreignOps = map[spirv.Opcode]Code{
	spirv.OpFunctionPointerCallINTEL:     CodeDispatch,
	spirv.OpConstantFunctionPointerINTEL: CodeDispatch,
	spirv.OpVariableLengthArrayINTEL:     CodeHeap,
	spirv.OpSaveMemoryINTEL:              CodeHeap,
	spirv.OpRestoreMemoryINTEL:           CodeHeap,
	spirv.OpConvertUToPtr:                CodeHostMemory,
	spirv.OpConvertPtrToU:                CodeHostMemory,
	spirv.OpKill:                         CodePanic,
	spirv.OpTerminateInvocation:          CodePanic,
}

// outside refuses an instruction that is not in the profile.
func (v *verifier) outside(in *spirv.Inst) *program.Refusal {
	if code := foreignOps[in.Op]; code != "" {
		return v.refuse(code, in, "%s", Codes[code])
	}
	return v.refuse(CodeOpcode, in, "the instruction is outside the profile")
}

// typed checks an instruction by its rule. t is its result type.
func (v *verifier) typed(in *spirv.Inst, t *typ) *program.Refusal {
	r := ruleOf(in.Op)
	if r == nil {
		return v.outside(in)
	}
	if r.n != anyCount && len(in.Args) != r.n {
		return v.refuse(CodeOperand, in, "%d operands; it has %d", len(in.Args), r.n)
	}
	if r.needs != 0 && !v.caps[r.needs] {
		return v.refuse(CodeNeeds, in, "needs capability %v", r.needs)
	}
	if r.since > v.m.Version {
		return v.refuse(CodeNeeds, in, "needs SPIR-V %d.%d", r.since>>16, r.since>>8&0xFF)
	}
	if t != nil && !r.small {
		if r := v.computes(in, t); r != nil {
			return r
		}
	}

	v.cur.bad, v.cur.small = nil, r.small
	refusal := r.check(v, in, t)
	if v.cur.bad != nil {
		return v.cur.bad
	}

	return refusal
}

// narrowArith are the capabilities for arithmetic on 8 and 16 bits. Those for storage
// only allow to move and convert.
var narrowArith = [...]struct {
	bit     uint8
	needs   spirv.Capability
	feature featureSet
}{
	{has8, spirv.CapabilityInt8, usesI8Arith},
	{hasI16, spirv.CapabilityInt16, usesI16Arith},
	{hasF16, spirv.CapabilityFloat16, usesF16Arith},
}

// computes checks that an instruction may compute with values of a type.
func (v *verifier) computes(in *spirv.Inst, t *typ) *program.Refusal {
	if t.lanes() == 0 && t.kind != kMatrix || t.bits&(has8|has16) == 0 {
		return nil
	}
	for _, n := range narrowArith {
		if t.bits&n.bit == 0 {
			continue
		}
		if !v.caps[n.needs] {
			return v.refuse(CodeNeeds, in, "arithmetic on %d bits needs capability %v", t.width, n.needs)
		}
		if v.cur.fn > 0 {
			v.functions[v.cur.fn-1].features |= n.feature
		}
	}
	return nil
}

// noType stands for the type of an operand that is no value.
var noType = &typ{}

// arg is the type of operand i, which must be a value that is defined before and
// dominates the use. Otherwise v.bad has the refusal and arg returns noType.
func (v *verifier) arg(in *spirv.Inst, i int) *typ {
	t, r := v.use(in, in.Arg(i))
	if r == nil && !v.cur.small {
		r = v.computes(in, t)
	}
	if r != nil {
		if v.cur.bad == nil {
			v.cur.bad = r
		}
		return noType
	}
	return t
}

// use is the type of a value where an instruction of the current block uses it.
func (v *verifier) use(in *spirv.Inst, id spirv.ID) (*typ, *program.Refusal) {
	i := v.info(id)
	switch i.what {
	case isConstant, isUndef, isParameter, isValue, isVariable:
	case isNothing:
		if v.m.Def(id) != nil {
			return nil, v.refuse(CodeUse, in, "%%%d is used before it is defined", id)
		}
		return nil, v.refuse(CodeID, in, "nothing defines %%%d", id)
	case isFunction:
		return nil, v.refuse(CodeDispatch, in, "the function %%%d as a value", id)
	default:
		return nil, v.refuse(CodeID, in, "%%%d is no value", id)
	}

	i.flags |= isUsed
	if i.fn != 0 {
		if i.fn != v.cur.fn {
			return nil, v.refuse(CodeUse, in, "%%%d belongs to another function", id)
		}
		if i.block != v.cur.at && v.cur.cfg.Reachable(int(v.cur.at)) && !v.cur.cfg.Dominates(int(i.block), int(v.cur.at)) {
			return nil, v.refuse(CodeUse, in, "the definition of %%%d does not dominate its use", id)
		}
	} else if i.what == isVariable {
		return i.typ, v.global(in, id, i)
	}

	return i.typ, nil
}

// declaredUse reports whether the entry point may use a variable: whether its
// interface has it, where it has to.
func (v *verifier) declaredUse(i *idInfo) bool {
	return i.flags&inInterface != 0 || i.typ.class != spirv.StorageClassInput && v.m.Version < version14
}

// global records the use of a variable outside functions.
func (v *verifier) global(in *spirv.Inst, id spirv.ID, i *idInfo) *program.Refusal {
	if len(v.m.EntryPoints) == 1 && !v.declaredUse(i) {
		return v.refuse(CodeInterface, in, "%%%d is used, and not in the entry point's interface", id)
	}
	if f := &v.functions[v.cur.fn-1]; len(f.globals) == 0 || f.globals[len(f.globals)-1] != id {
		f.globals = append(f.globals, id)
	}
	return nil
}
