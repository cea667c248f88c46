package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// decorations of the profile, and whether they belong to members of structs,
// to whole ids, or to both.
const (
	onID = 1 << iota
	onMember
)

var decorations = map[spirv.Decoration]uint8{
	spirv.DecorationRelaxedPrecision: onID | onMember,
	spirv.DecorationSpecId:           onID,
	spirv.DecorationBlock:            onID,
	spirv.DecorationBufferBlock:      onID,
	spirv.DecorationArrayStride:      onID,
	spirv.DecorationOffset:           onMember,
	spirv.DecorationMatrixStride:     onMember,
	spirv.DecorationColMajor:         onMember,
	spirv.DecorationRowMajor:         onMember,
	spirv.DecorationBuiltIn:          onID,
	spirv.DecorationNoContraction:    onID,
	spirv.DecorationRestrict:         onID | onMember,
	spirv.DecorationAliased:          onID,
	spirv.DecorationVolatile:         onID | onMember,
	spirv.DecorationCoherent:         onID | onMember,
	spirv.DecorationNonWritable:      onID | onMember,
	spirv.DecorationNonReadable:      onID | onMember,
	spirv.DecorationBinding:          onID,
	spirv.DecorationDescriptorSet:    onID,
	spirv.DecorationNoSignedWrap:     onID,
	spirv.DecorationNoUnsignedWrap:   onID,
	spirv.DecorationNonUniform:       onID,
	spirv.DecorationUserSemantic:     onID | onMember,
	spirv.DecorationUserTypeGOOGLE:   onID | onMember,
}

// annotations makes the lists of each id's decorations. Their meaning is checked
// with the decorated objects.
func (v *verifier) annotations() *program.Refusal {
	all := v.m.Annotations
	v.decHead = make([]int32, len(v.ids))
	v.decNext = make([]int32, len(all))
	for i := range all {
		in := &all[i]
		var on uint8
		var d spirv.Decoration
		switch in.Op {
		case spirv.OpDecorate, spirv.OpDecorateString:
			on, d = onID, spirv.Decoration(in.Arg(1))
		case spirv.OpMemberDecorate, spirv.OpMemberDecorateString:
			on, d = onMember, spirv.Decoration(in.Arg(2))
		default:
			return v.refuse(CodeDecoration, in, "outside the profile")
		}

		if decorations[d] == 0 {
			return v.refuse(CodeDecoration, in, "decoration %v is outside the profile", d)
		}
		if decorations[d]&on == 0 {
			return v.refuse(CodeDecorated, in, "decoration %v is not for this", d)
		}

		target := in.Arg(0)
		if target == 0 || uint64(target) >= uint64(len(v.ids)) {
			return v.refuse(CodeID, in, "nothing defines %%%d", target)
		}
	}

	for i := len(all) - 1; i >= 0; i-- { // backwards, so that the lists are in order
		target := all[i].Arg(0)
		v.decNext[i] = v.decHead[target]
		v.decHead[target] = int32(i + 1)
	}

	return nil
}

// dec is the decoration d of id, nil if it has none.
func (v *verifier) dec(id spirv.ID, d spirv.Decoration) *spirv.Inst {
	for i := v.decHead[id]; i != 0; i = v.decNext[i-1] {
		in := &v.m.Annotations[i-1]
		if in.Op == spirv.OpDecorate && spirv.Decoration(in.Arg(1)) == d {
			return in
		}
	}
	return nil
}

// decorated checks the decorations of every id, and names, once their objects are
// known.
func (v *verifier) decorated() *program.Refusal {
	for i := range v.m.Debug {
		in := &v.m.Debug[i]
		switch in.Op {
		case spirv.OpSource:
			if len(in.Args) < 3 {
				continue
			}
			if d := v.m.Def(in.Arg(2)); d == nil || d.Op != spirv.OpString || d.Off > in.Off {
				return v.refuse(CodeID, in, "%%%d is no OpString", in.Arg(2))
			}
		case spirv.OpName:
			if v.info(in.Arg(0)).what == isNothing && v.m.Def(in.Arg(0)) == nil {
				return v.refuse(CodeID, in, "nothing defines %%%d", in.Arg(0))
			}
		case spirv.OpMemberName:
			if t := v.typeAt(in.Arg(0)); t == nil || t.kind != kStruct || uint64(in.Arg(1)) >= uint64(len(t.members)) {
				return v.refuse(CodeID, in, "%%%d has no member %d", in.Arg(0), in.Arg(1))
			}
		}
	}

	for id := range v.decHead {
		var seen [8]uint64 // by decoration below 512; layouts look for twins on members
		for i := v.decHead[id]; i != 0; i = v.decNext[i-1] {
			in := &v.m.Annotations[i-1]
			if in.Op == spirv.OpMemberDecorate || in.Op == spirv.OpMemberDecorateString {
				t := v.typeAt(spirv.ID(id))
				if t == nil || t.kind != kStruct || uint64(in.Arg(1)) >= uint64(len(t.members)) {
					return v.refuse(CodeDecorated, in, "%%%d has no member %d", id, in.Arg(1))
				}
				switch d := spirv.Decoration(in.Arg(2)); d {
				case spirv.DecorationMatrixStride, spirv.DecorationColMajor, spirv.DecorationRowMajor:
					if !t.members[in.Arg(1)].ofMatrices() {
						return v.refuse(CodeDecorated, in, "decoration %v on a member that is no matrix", d)
					}
				}
				continue
			}

			d := spirv.Decoration(in.Arg(1))
			if d < 512 {
				if seen[d/64]>>(d%64)&1 != 0 {
					return v.refuse(CodeDecorated, in, "decoration %v twice on %%%d", d, id)
				}
				seen[d/64] |= 1 << (d % 64)
			}

			if r := v.target(in, d, spirv.ID(id)); r != nil {
				return r
			}
		}
	}

	return nil
}

// target checks that a decoration is on an object for which it is meant.
func (v *verifier) target(in *spirv.Inst, d spirv.Decoration, id spirv.ID) *program.Refusal {
	i, def := v.info(id), v.m.Def(id)
	ok := true
	switch d {
	case spirv.DecorationBlock, spirv.DecorationBufferBlock:
		ok = i.what == isType && i.typ.kind == kStruct

	case spirv.DecorationArrayStride:
		ok = i.what == isType && (i.typ.kind == kArray || i.typ.kind == kRuntimeArray || i.typ.kind == kPointer)
		if ok && in.Arg(2) == 0 {
			return v.refuse(CodeLayout, in, "an array stride of 0")
		}

	case spirv.DecorationSpecId:
		ok = i.what == isConstant && (def.Op == spirv.OpSpecConstant || def.Op == spirv.OpSpecConstantTrue || def.Op == spirv.OpSpecConstantFalse)
	case spirv.DecorationBuiltIn:
		ok = i.what == isConstant || i.what == isVariable && i.typ.class == spirv.StorageClassInput

	case spirv.DecorationBinding, spirv.DecorationDescriptorSet:
		ok = i.what == isVariable && i.fn == 0 && (i.typ.class == spirv.StorageClassStorageBuffer || i.typ.class == spirv.StorageClassUniform)
	case spirv.DecorationNonWritable, spirv.DecorationNonReadable, spirv.DecorationRestrict, spirv.DecorationAliased,
		spirv.DecorationVolatile, spirv.DecorationCoherent:
		ok = i.what == isVariable || i.what == isParameter || i.what == isType && i.typ.kind == kStruct
		if v.vulkan && (d == spirv.DecorationVolatile || d == spirv.DecorationCoherent) {
			return v.refuse(CodeDecorated, in, "decoration %v with the memory model Vulkan", d)
		}

	case spirv.DecorationRelaxedPrecision:
		ok = i.what != isType && def != nil
	default:
		ok = i.what != isNothing || def != nil
	}

	if !ok {
		return v.refuse(CodeDecorated, in, "decoration %v is not for %%%d", d, id)
	}

	return nil
}
