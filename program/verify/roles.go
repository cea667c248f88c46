package verify

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// roles are the specialisation constants that a launch sets. The module says which
// are the workgroup's size: any SpecId, each in one dimension. The dynamic array's
// length is the manifest's dynamicShared, or by convention SpecId 3.
type roles struct {
	block   [3]uint64 // 1 + the SpecId of a dimension; 0 if the launch does not decide it
	dynamic spirv.ID  // the constant; 0 if there is none
}

// dimension is the dimension that a SpecId decides, -1 if none.
func (r *roles) dimension(specID uint32) int {
	return slices.Index(r.block[:], 1+uint64(specID))
}

// assign finds the roles before any constant is declared: a constant's role is in
// whatever is computed from it.
func (v *verifier) assign() *program.Refusal {
	v.assignBlock()
	return v.assignDynamic()
}

// assignBlock finds the constants of the workgroup's size: of WorkgroupSize, or of
// LocalSizeId where there is none.
func (v *verifier) assignBlock() {
	var size []uint32
	for i := range v.m.Modes {
		if in := &v.m.Modes[i]; in.Op == spirv.OpExecutionModeId && spirv.ExecutionMode(in.Arg(1)) == spirv.ExecutionModeLocalSizeId && v.entry != nil && in.Arg(0) == v.entry.Arg(1) {
			size = in.Args[2:]
		}
	}

	for i := range v.m.Annotations {
		in := &v.m.Annotations[i]
		if in.Op != spirv.OpDecorate || spirv.Decoration(in.Arg(1)) != spirv.DecorationBuiltIn || spirv.BuiltIn(in.Arg(2)) != spirv.BuiltInWorkgroupSize {
			continue
		}
		if d := v.m.Def(in.Arg(0)); d != nil && (d.Op == spirv.OpSpecConstantComposite || d.Op == spirv.OpConstantComposite) {
			size = d.Args
		}
	}

	if len(size) != 3 {
		return // interfaces says what is wrong
	}

	for i, w := range size {
		if d := v.specID(spirv.ID(w)); d != nil {
			v.roles.block[i] = 1 + uint64(d.Arg(2))
		}
	}

	// One constant for two dimensions ties them: a launch cannot decide each.
	for i, role := range v.roles.block {
		for j := range i {
			if role != 0 && role == v.roles.block[j] {
				v.roles.block[i], v.roles.block[j] = 0, 0
			}
		}
	}
}

// specID is the decoration SpecId of a 32-bit integer, nil if it has none.
func (v *verifier) specID(id spirv.ID) *spirv.Inst {
	d := v.m.Def(id)
	if d == nil || d.Op != spirv.OpSpecConstant {
		return nil
	}
	if t := v.m.Def(d.Type); t == nil || t.Op != spirv.OpTypeInt || t.Args[0] != 32 {
		return nil
	}
	return v.dec(id, spirv.DecorationSpecId)
}

func (v *verifier) assignDynamic() *program.Refusal {
	named := v.manifest.DynamicShared
	want := uint32(program.SpecShared)
	if named != nil {
		want = *named
	}

	var found []spirv.ID
	for i := range v.m.Annotations {
		in := &v.m.Annotations[i]
		if in.Op == spirv.OpDecorate && spirv.Decoration(in.Arg(1)) == spirv.DecorationSpecId && uint32(in.Arg(2)) == want {
			found = append(found, in.Arg(0))
		}
	}

	set := slices.ContainsFunc(v.manifest.Constants, func(c program.Constant) bool { return c.ID == want })
	switch usable := len(found) == 1 && v.specID(found[0]) != nil && v.roles.dimension(want) < 0; {
	case named == nil && (!usable || set || !v.lengthOnly(found[0])):
		return nil

	case named != nil && !usable:
		return v.contradicts(CodeManifestConstants, "dynamicShared: SpecId %d is not one 32-bit integer besides the workgroup's size", want)
	case set:
		return v.contradicts(CodeManifestConstants, "constants: SpecId %d is the launch's, as dynamicShared says", want)
	}

	v.roles.dynamic = found[0]
	return nil
}

// lengthOnly reports whether a constant is the length of one array in shared memory,
// and of no other array.
func (v *verifier) lengthOnly(c spirv.ID) bool {
	from := map[spirv.ID]bool{c: true} // what is computed from it
	arrays, pointers := map[spirv.ID]bool{}, map[spirv.ID]bool{}
	variables := 0
	for i := range v.m.Globals {
		in := &v.m.Globals[i]
		switch in.Op {
		case spirv.OpSpecConstantOp, spirv.OpSpecConstantComposite:
			from[in.Result] = slices.ContainsFunc(in.Args, func(w uint32) bool { return from[spirv.ID(w)] })

		case spirv.OpTypeArray:
			switch {
			case arrays[in.Arg(0)], in.Arg(1) != c && from[in.Arg(1)]:
				return false
			case in.Arg(1) == c:
				arrays[in.Result] = true
			}

		case spirv.OpTypeStruct, spirv.OpTypeRuntimeArray:
			if slices.ContainsFunc(in.Args, func(w uint32) bool { return arrays[spirv.ID(w)] }) {
				return false
			}

		case spirv.OpTypePointer:
			switch {
			case !arrays[in.Arg(1)]:
			case spirv.StorageClass(in.Arg(0)) != spirv.StorageClassWorkgroup:
				return false
			default:
				pointers[in.Result] = true
			}

		case spirv.OpVariable:
			if pointers[in.Type] {
				variables++
			}
		}
	}

	return variables == 1
}
