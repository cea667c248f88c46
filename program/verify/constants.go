package verify

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

type form uint8

const (
	scalarForm    form = 1 + iota // bits
	compositeForm                 // constituents are in.Args
	vectorForm                    // parts: computed
	nullForm                      // all zero
	laterForm                     // floats: an engine computes them, and nothing here depends on them
)

// constant is a constant with its default value, or the manifest's.
type constant struct {
	in    *spirv.Inst
	typ   *typ
	form  form
	deps  uint8
	bits  uint64 // cut to the width of the type; a bool is 0 or 1
	parts []uint64
}

// The dependencies of a constant.
const (
	depBlock  = 1 << iota // of the workgroup's size
	depShared             // the length of the dynamic array
	depOther              // another SpecId
)

// constant is the constant of this id; nil if it is none.
func (v *verifier) constant(id spirv.ID) *constant {
	if i := v.info(id); i.what == isConstant {
		return &v.consts[i.num]
	}
	return nil
}

// literal is the value of an OpConstant of an integer type: the only constants
// allowed where the value must be known when a module is compiled.
func (v *verifier) literal(id spirv.ID) (uint64, bool) {
	c := v.constant(id)
	if c == nil || c.in.Op != spirv.OpConstant || c.typ.kind != kInt {
		return 0, false
	}
	return c.bits, true
}

func (t *typ) mask() uint64 {
	if t.kind == kBool {
		return 1
	}
	return ^uint64(0) >> (64 - max(t.width, 1))
}

// declareConstant adds the constant that in declares.
func (v *verifier) declareConstant(in *spirv.Inst) *program.Refusal {
	t := v.typeAt(in.Type)
	if t == nil {
		return v.refuse(CodeConstant, in, "%%%d is no type", in.Type)
	}

	switch {
	case t.kind == kPointer && (!v.choosable(t) || in.Op != spirv.OpConstantNull && in.Op != spirv.OpUndef):
		return v.refuse(CodePointer, in, "a constant pointer")
	case !t.value():
		return v.refuse(CodeConstant, in, "no value has the type %%%d", in.Type)
	}

	if t.bytes > uint64(v.lim.ValueBytes) {
		return v.refuse(CodeLarge, in, "a value of %d bytes; the limit is %d", t.bytes, v.lim.ValueBytes)
	}

	c := constant{in: in, typ: t}
	var r *program.Refusal
	switch in.Op {
	case spirv.OpUndef:
		v.ids[in.Result] = idInfo{what: isUndef, typ: t, root: in.Result}
		return nil

	case spirv.OpConstantTrue, spirv.OpConstantFalse, spirv.OpSpecConstantTrue, spirv.OpSpecConstantFalse:
		if t.kind != kBool {
			return v.refuse(CodeConstant, in, "not of the type bool")
		}
		c.form = scalarForm
		if in.Op == spirv.OpConstantTrue || in.Op == spirv.OpSpecConstantTrue {
			c.bits = 1
		}

	case spirv.OpConstant, spirv.OpSpecConstant:
		if t.kind != kInt && t.kind != kFloat || len(in.Args) != int(t.width+31)/32 {
			return v.refuse(CodeConstant, in, "not a number of %%%d", in.Type)
		}
		if t.width < 32 && !canonical(t, in.Args[0]) {
			return v.refuse(CodeConstant, in, "the literal %#x does not continue a value of %d bits", in.Args[0], t.width)
		}
		c.form = scalarForm
		c.bits = uint64(in.Args[0])
		if len(in.Args) > 1 {
			c.bits |= uint64(in.Args[1]) << 32
		}
		c.bits &= t.mask()

	case spirv.OpConstantNull:
		if c.form = nullForm; t.lanes() == 1 {
			c.form = scalarForm
		}

	case spirv.OpConstantComposite, spirv.OpSpecConstantComposite:
		c.form = compositeForm
		r = v.constituents(in, t, &c)

	case spirv.OpSpecConstantOp:
		r = v.specOp(in, t, &c)
	default:
		return v.refuse(CodeOpcode, in, "outside the profile")
	}

	if r == nil && c.form == scalarForm {
		r = v.specialise(in, t, &c)
	}
	if r != nil {
		return r
	}

	v.ids[in.Result] = idInfo{what: isConstant, typ: t, num: int32(len(v.consts)), root: in.Result}
	v.consts = append(v.consts, c)
	return nil
}

// canonical reports whether the bits of a literal above a narrow type continue its
// sign, or are 0 (specification, 2.2.1).
func canonical(t *typ, word uint32) bool {
	unused := 32 - uint32(t.width)
	if t.kind == kInt && t.signed {
		return uint32(int32(word<<unused)>>unused) == word
	}
	return word<<unused>>unused == word
}

// constituents checks those of a composite constant.
func (v *verifier) constituents(in *spirv.Inst, t *typ, c *constant) *program.Refusal {
	if !t.composite() {
		return v.refuse(CodeConstant, in, "%%%d is no composite type", in.Type)
	}

	n := t.n
	if t.kind == kStruct {
		n = uint32(len(t.members))
	}
	if uint64(len(in.Args)) != uint64(n) {
		return v.refuse(CodeConstant, in, "%d constituents of %d", len(in.Args), n)
	}

	for i := range in.Args {
		want := t.elem
		if t.kind == kStruct {
			want = t.members[i]
		}
		p := v.info(in.Arg(i))
		if p.what != isConstant && p.what != isUndef || p.typ != want {
			return v.refuse(CodeConstant, in, "constituent %d, %%%d, is no constant of the type %%%d", i, in.Arg(i), want.id())
		}
		if p.what == isConstant {
			c.deps |= v.consts[p.num].deps
		}
	}

	if t.launch {
		return v.refuse(CodeSpecID, in, "a value whose size is the launch's")
	}

	return nil
}

// specialise gives a specialisation constant its role, and the manifest's value.
func (v *verifier) specialise(in *spirv.Inst, t *typ, c *constant) *program.Refusal {
	switch in.Op {
	case spirv.OpSpecConstant, spirv.OpSpecConstantTrue, spirv.OpSpecConstantFalse:
	default:
		return nil
	}

	d := v.dec(in.Result, spirv.DecorationSpecId)
	if d == nil {
		c.deps |= depOther
		return nil
	}

	id := uint32(d.Arg(2))
	if in.Result == v.roles.dynamic {
		c.deps |= depShared
		return nil
	}

	c.deps |= depOther
	dimension := v.roles.dimension(id)
	if dimension >= 0 {
		if t.kind != kInt || t.width != 32 {
			return v.refuse(CodeDimensions, in, "SpecId %d is the workgroup's size: a 32-bit integer", id)
		}
		c.deps |= depBlock
		v.sameBlock(dimension, in.Result)
		if n := v.manifest.Block; len(n) > 0 {
			c.bits = 1
			if dimension < len(n) {
				c.bits = uint64(n[dimension])
			}
		}
	}

	i := slices.IndexFunc(v.manifest.Constants, func(m program.Constant) bool { return m.ID == id })
	if i < 0 {
		return nil
	}

	value := v.manifest.Constants[i].Value
	if value&^t.mask() != 0 {
		return v.refuse(CodeManifestConstants, in, "the manifest's constants: %d for SpecId %d is no value of its type", value, id)
	}
	if dimension >= 0 {
		if len(v.manifest.Block) > 0 && c.bits != value {
			return v.contradicts(CodeManifestBlock, "block has %d where constant %d is %d", c.bits, id, value)
		}
		c.bits = value // the default
		return nil
	}

	c.bits = value
	v.setConstant(in.Result, value)
	return nil
}

// sameBlock records a constant with the SpecId of a dimension. There may be several:
// glslang declares one for LocalSizeId and one for gl_WorkGroupSize.
func (v *verifier) sameBlock(dimension int, id spirv.ID) {
	if v.iface.sizes == nil {
		v.iface.sizes = make(map[spirv.ID]int, 3)
	}
	v.iface.sizes[id] = dimension
}

func (v *verifier) setConstant(id spirv.ID, value uint64) {
	if v.specialised == nil {
		v.specialised = make(map[spirv.ID]uint64)
	}
	v.specialised[id] = value
}

// part is component i of a vector, with what it depends on.
func (v *verifier) part(c *constant, i uint32) (bits uint64, deps uint8) {
	switch c.form {
	case compositeForm:
		if p := v.constant(c.in.Arg(int(i))); p != nil {
			return p.bits, p.deps
		}
	case vectorForm:
		return c.parts[i], c.deps
	case scalarForm:
		return c.bits, c.deps
	}
	return 0, c.deps
}
