package verify

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

func (v *verifier) phiType(fn *function, in *spirv.Inst) *program.Refusal {
	t := v.typeAt(in.Type)
	if !t.value() {
		return v.refuse(CodeResult, in, "no value has the type %%%d", in.Type)
	}
	if t.kind == kPointer {
		v.cur.root, v.cur.rootFlags, v.cur.member = 0, 0, 0
		if r := v.chooses(in, t); r != nil {
			return r
		}
	}
	return v.resultOf(fn, in, t)
}

// phis checks the operands of phis, once all values of the function are known.
func (v *verifier) phis(fn *function) *program.Refusal {
	c := fn.cfg
	seen := make([]int32, len(c.Blocks)) // 1 + the number of the phi that last named the block
	n := int32(0)
	for i, b := range c.Blocks {
		for j := range b.Insts {
			in := &b.Insts[j]
			if in.Op == spirv.OpNop || in.Op == spirv.OpLine || in.Op == spirv.OpNoLine {
				continue
			}
			if in.Op != spirv.OpPhi {
				break
			}

			n++
			if len(in.Args) != 2*len(c.Preds[i]) {
				return v.refuse(CodePhi, in, "%d values for %d predecessors", len(in.Args)/2, len(c.Preds[i]))
			}

			for k := 0; k < len(in.Args); k += 2 {
				p, ok := c.Index[in.Arg(k+1)]
				if _, found := slices.BinarySearch(c.Preds[i], p); !ok || !found || seen[p] == n {
					return v.refuse(CodePhi, in, "%%%d is no predecessor, or is there twice", in.Arg(k+1))
				}

				seen[p] = n
				x := v.info(in.Arg(k))
				if x.what != isConstant && x.what != isUndef && x.what != isParameter && x.what != isValue && x.what != isVariable {
					return v.refuse(CodePhi, in, "%%%d is no value", in.Arg(k))
				}

				x.flags |= isUsed
				if x.typ != v.ids[in.Result].typ {
					return v.refuse(CodePhi, in, "%%%d is not of the result's type", in.Arg(k))
				}
				if x.typ.kind == kPointer {
					if r := v.becomes(in, in.Result, in.Arg(k)); r != nil {
						return r
					}
					if x.what == isVariable && x.fn == 0 {
						if r := v.global(in, in.Arg(k), x); r != nil {
							return r
						}
					}
				}
				if x.fn != 0 && (x.fn != v.cur.fn || c.Reachable(p) && !c.Dominates(int(x.block), p)) {
					return v.refuse(CodeUse, in, "the definition of %%%d does not dominate the predecessor %%%d", in.Arg(k), in.Arg(k+1))
				}
			}
		}
	}

	return nil
}
