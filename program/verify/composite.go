package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

func undef(*verifier, *spirv.Inst, *typ) *program.Refusal { return nil }

func copyObject(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if v.arg(in, 0) != t {
		return v.badOperand(in, 0, "of the result's type")
	}
	if t.kind == kPointer {
		from := v.info(in.Arg(0))
		v.cur.root, v.cur.rootFlags, v.cur.member = from.root, from.flags, from.member
	}
	return nil
}

// copyLogical copies between aggregates that differ only in decorations.
func copyLogical(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	a := v.arg(in, 0)
	if a == t || !alike(a, t) {
		return v.badOperand(in, 0, "of another type with the same parts as the result")
	}
	return nil
}

// alike recurses no deeper than types nest. If both nest the same pairs again and
// again, the value's size, which is limited, bounds the work.
func alike(a, b *typ) bool {
	if a == b {
		return true
	}
	if a.kind != b.kind || a.bytes != b.bytes {
		return false
	}

	switch a.kind {
	case kArray:
		return a.length == b.length && alike(a.elem, b.elem)
	case kStruct:
		if len(a.members) != len(b.members) {
			return false
		}
		for i := range a.members {
			if !alike(a.members[i], b.members[i]) {
				return false
			}
		}
		return true
	}

	return false
}

func compositeConstruct(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	switch t.kind {
	case kVector:
		var n uint32
		for i := range in.Args {
			a := v.arg(in, i)
			if a.lanes() == 0 || a.scalar() != t.elem {
				return v.badOperand(in, i, "of the result's components")
			}
			n += a.lanes()
		}
		if n != t.n || len(in.Args) < 2 {
			return v.refuse(CodeOperand, in, "%d components of %d", n, t.n)
		}

	case kMatrix, kArray, kStruct:
		n := int(t.n)
		if t.kind == kStruct {
			n = len(t.members)
		}
		if len(in.Args) != n {
			return v.refuse(CodeOperand, in, "%d parts of %d", len(in.Args), n)
		}
		for i := range in.Args {
			if v.arg(in, i) != t.part(uint32(i)) {
				return v.badOperand(in, i, "of the part's type")
			}
		}

	default:
		return v.badResult(in, "a composite")
	}
	return nil
}

// part is the type of part i of a composite; nil if there is none.
func (t *typ) part(i uint32) *typ {
	switch t.kind {
	case kVector, kMatrix, kArray:
		if i < t.n {
			return t.elem
		}
	case kStruct:
		if uint64(i) < uint64(len(t.members)) {
			return t.members[i]
		}
	}
	return nil
}

// walk follows literal indexes into a composite.
func (v *verifier) walk(in *spirv.Inst, t *typ, indexes []uint32) (*typ, *program.Refusal) {
	for _, i := range indexes {
		next := t.part(i)
		if next == nil {
			return nil, v.refuse(CodeOperand, in, "there is no part %d", i)
		}
		t = next
	}
	return t, nil
}

func compositeExtract(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	a := v.arg(in, 0)
	if len(in.Args) < 2 {
		return v.refuse(CodeOperand, in, "without an index")
	}
	found, r := v.walk(in, a, in.Args[1:])
	if r == nil && found != t {
		r = v.badResult(in, "that of the part")
	}
	return r
}

func compositeInsert(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if len(in.Args) < 3 {
		return v.refuse(CodeOperand, in, "without an index")
	}
	part, whole := v.arg(in, 0), v.arg(in, 1)
	if whole != t {
		return v.badOperand(in, 1, "of the result's type")
	}
	found, r := v.walk(in, t, in.Args[2:])
	if r == nil && found != part {
		r = v.badOperand(in, 0, "of the part's type")
	}
	return r
}

func vectorExtractDynamic(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	a := v.arg(in, 0)
	if a.kind != kVector || a.elem != t {
		return v.badOperand(in, 0, "a vector of the result's type")
	}
	return v.index(in, 1)
}

func vectorInsertDynamic(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if t.kind != kVector {
		return v.badResult(in, "a vector")
	}
	if v.arg(in, 0) != t {
		return v.badOperand(in, 0, "of the result's type")
	}
	if v.arg(in, 1) != t.elem {
		return v.badOperand(in, 1, "a component of the result's type")
	}
	return v.index(in, 2)
}

// index checks an index that is a value.
func (v *verifier) index(in *spirv.Inst, i int) *program.Refusal {
	if t := v.arg(in, i); !t.isScalar(kInt) {
		return v.badOperand(in, i, "an integer")
	}
	return nil
}

func vectorShuffle(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if len(in.Args) < 2 {
		return v.refuse(CodeOperand, in, "without vectors")
	}

	a, b := v.arg(in, 0), v.arg(in, 1)
	if t.kind != kVector || uint64(len(in.Args)) != uint64(t.n)+2 {
		return v.badResult(in, "a vector of as many components as there are literals")
	}

	for i, x := range []*typ{a, b} {
		if x.kind != kVector || x.elem != t.elem {
			return v.badOperand(in, i, "a vector of the result's components")
		}
	}

	for _, c := range in.Args[2:] {
		if c >= a.n+b.n && c != 0xFFFFFFFF {
			return v.refuse(CodeOperand, in, "there is no component %d", c)
		}
	}

	return nil
}
