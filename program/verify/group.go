package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// subgroup checks the scope of a group operation.
func (v *verifier) subgroup(in *spirv.Inst) *program.Refusal {
	s, r := v.scope(in, 0)
	if r == nil && s != spirv.ScopeSubgroup {
		r = v.refuse(CodeScope, in, "a group operation of scope %v; the profile has Subgroup", s)
	}
	return r
}

// register checks that the operands of a group operation fit a register, or are a
// vector of such.
func (v *verifier) register(in *spirv.Inst, t *typ) *program.Refusal {
	if t.lanes() == 0 {
		return v.refuse(CodeShuffle, in, "a struct, array or pointer is moved between lanes; move its parts")
	}
	return nil
}

func groupVote(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if r := v.subgroup(in); r != nil {
		return r
	}
	if !t.isScalar(kBool) {
		return v.badResult(in, "a bool")
	}
	if len(in.Args) < 2 {
		return nil
	}

	a := v.arg(in, 1)
	if v.cur.bad == nil && in.Op == spirv.OpGroupNonUniformAllEqual {
		return v.register(in, a)
	}
	if in.Op != spirv.OpGroupNonUniformAllEqual && !a.isScalar(kBool) {
		return v.badOperand(in, 1, "a bool")
	}

	return nil
}

// groupMove is broadcasts and shuffles: a value, and its source.
func groupMove(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if r := v.subgroup(in); r != nil {
		return r
	}
	if r := v.register(in, t); r != nil {
		return r
	}
	if v.arg(in, 1) != t {
		return v.badOperand(in, 1, "of the result's type")
	}
	if len(in.Args) < 3 {
		return nil
	}
	if l := v.arg(in, 2); !l.isScalar(kInt) || l.width != 32 || l.signed {
		return v.badOperand(in, 2, "a lane: an unsigned 32-bit integer")
	}

	what := v.info(in.Arg(2)).what
	if in.Op == spirv.OpGroupNonUniformBroadcast && what != isConstant && v.m.Version < version15 {
		return v.badOperand(in, 2, "a constant, as it is to be before SPIR-V 1.5")
	}

	return nil
}

func groupBallot(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if r := v.subgroup(in); r != nil {
		return r
	}

	mask := func(t *typ) bool { return t.isVector(kInt) && t.n == 4 && t.width == 32 && !t.elem.signed }
	want := map[spirv.Opcode]int{spirv.OpGroupNonUniformBallotBitExtract: 3, spirv.OpGroupNonUniformBallotBitCount: 3}[in.Op]
	if len(in.Args) != max(want, 2) {
		return v.refuse(CodeOperand, in, "%d operands", len(in.Args))
	}

	value := 1
	switch in.Op {
	case spirv.OpGroupNonUniformBallot:
		if !mask(t) {
			return v.badResult(in, "a vector of four unsigned 32-bit integers")
		}
		if !v.arg(in, 1).isScalar(kBool) {
			return v.badOperand(in, 1, "a bool")
		}
		return nil

	case spirv.OpGroupNonUniformInverseBallot, spirv.OpGroupNonUniformBallotBitExtract:
		if !t.isScalar(kBool) {
			return v.badResult(in, "a bool")
		}

	default:
		if !t.isScalar(kInt) || t.width != 32 || t.signed {
			return v.badResult(in, "an unsigned 32-bit integer")
		}
		if in.Op == spirv.OpGroupNonUniformBallotBitCount {
			if r := v.operation(in, 1); r != nil {
				return r
			}
			value = 2
		}
	}

	if !mask(v.arg(in, value)) {
		return v.badOperand(in, value, "a vector of four unsigned 32-bit integers")
	}

	if in.Op == spirv.OpGroupNonUniformBallotBitExtract {
		if i := v.arg(in, 2); !i.isScalar(kInt) || i.width != 32 || i.signed {
			return v.badOperand(in, 2, "a lane: an unsigned 32-bit integer")
		}
	}

	return nil
}

func (v *verifier) operation(in *spirv.Inst, i int) *program.Refusal {
	switch o := spirv.GroupOperation(in.Args[i]); o {
	case spirv.GroupOperationReduce, spirv.GroupOperationInclusiveScan, spirv.GroupOperationExclusiveScan:
		return nil
	default:
		return v.refuse(CodeScope, in, "group operation %v is outside the profile", o)
	}
}

// reduction checks the operation of an instruction that combines lanes, and of a
// clustered one the size of the clusters.
func (v *verifier) reduction(in *spirv.Inst) *program.Refusal {
	if spirv.GroupOperation(in.Args[1]) != spirv.GroupOperationClusteredReduce {
		if len(in.Args) != 3 {
			return v.refuse(CodeOperand, in, "%d operands; it has 3", len(in.Args))
		}
		if !v.caps[spirv.CapabilityGroupNonUniformArithmetic] {
			return v.refuse(CodeNeeds, in, "needs capability %v", spirv.CapabilityGroupNonUniformArithmetic)
		}
		return v.operation(in, 1)
	}

	if !v.caps[spirv.CapabilityGroupNonUniformClustered] {
		return v.refuse(CodeNeeds, in, "needs capability %v", spirv.CapabilityGroupNonUniformClustered)
	}
	if len(in.Args) != 4 {
		return v.refuse(CodeOperand, in, "%d operands; with a cluster it has 4", len(in.Args))
	}
	if n := v.arg(in, 3); !n.isScalar(kInt) || n.width != 32 || n.signed {
		return v.badOperand(in, 3, "a size: an unsigned 32-bit integer")
	}
	c := v.constant(in.Arg(3))
	if c == nil || c.form != scalarForm || c.deps&(depBlock|depShared) != 0 || c.bits == 0 || c.bits&(c.bits-1) != 0 {
		return v.badOperand(in, 3, "a constant power of two")
	}
	return nil
}

// groupQuad is what moves values within four lanes.
func groupQuad(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if r := v.subgroup(in); r != nil {
		return r
	}
	if r := v.register(in, t); r != nil {
		return r
	}
	if v.arg(in, 1) != t {
		return v.badOperand(in, 1, "of the result's type")
	}
	if l := v.arg(in, 2); !l.isScalar(kInt) || l.width != 32 || l.signed {
		return v.badOperand(in, 2, "a lane or direction: an unsigned 32-bit integer")
	}

	c := v.constant(in.Arg(2))
	switch {
	case in.Op == spirv.OpGroupNonUniformQuadSwap:
		if c == nil || c.form != scalarForm || c.deps&(depBlock|depShared) != 0 || c.bits > 2 {
			return v.badOperand(in, 2, "a constant direction from 0 to 2")
		}
	case c == nil && v.m.Version < version15:
		return v.badOperand(in, 2, "a constant, as it is to be before SPIR-V 1.5")
	}

	return nil
}

func groupArithmetic(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if r := v.subgroup(in); r != nil {
		return r
	}
	if len(in.Args) < 3 {
		return v.refuse(CodeOperand, in, "%d operands", len(in.Args))
	}
	if r := v.reduction(in); r != nil {
		return r
	}
	if r := v.register(in, t); r != nil {
		return r
	}

	want := kInt
	switch in.Op {
	case spirv.OpGroupNonUniformFAdd, spirv.OpGroupNonUniformFMul, spirv.OpGroupNonUniformFMin, spirv.OpGroupNonUniformFMax:
		want = kFloat
	case spirv.OpGroupNonUniformLogicalAnd, spirv.OpGroupNonUniformLogicalOr, spirv.OpGroupNonUniformLogicalXor:
		want = kBool
	}

	unsigned := in.Op == spirv.OpGroupNonUniformUMin || in.Op == spirv.OpGroupNonUniformUMax
	if !t.is(want) || unsigned && t.scalar().signed {
		return v.badResult(in, "what the operation gives")
	}
	if v.arg(in, 2) != t {
		return v.badOperand(in, 2, "of the result's type")
	}

	return nil
}
