package verify

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// workgroup is the size of the workgroup, from the execution mode or, stronger,
// from the constant with the built-in WorkgroupSize.
type workgroup struct {
	in  *spirv.Inst // what says it
	n   [3]uint32
	ids [3]spirv.ID // if the launch decides
}

// interfaces checks the entry point, its execution modes and its interface.
func (v *verifier) interfaces() *program.Refusal {
	e := v.entry
	for _, f := range v.m.Functions {
		if f.ID() == e.Arg(1) {
			v.iface.entry = f
		}
	}

	if v.iface.entry == nil {
		return v.refuse(CodeInterface, e, "%%%d is no function", e.Arg(1))
	}

	name, n := spirv.Text(e.Args[2:])
	v.iface.entryName = name
	if name == "" || len(name) > program.MaxNameBytes {
		return v.refuse(CodeInterface, e, "a name of %d bytes; it has 1 to %d", len(name), program.MaxNameBytes)
	}
	if v.manifest.Entry != "" && v.manifest.Entry != name {
		return v.refuse(CodeManifestEntry, e, "the manifest's entry is %.80q, the module's %.80q", v.manifest.Entry, name)
	}

	for _, w := range e.Args[2+n:] {
		i := v.info(spirv.ID(w))
		if i.what != isVariable {
			return v.refuse(CodeInterface, e, "%%%d is no variable", w)
		}
		if v.m.Version < version14 && i.typ.class != spirv.StorageClassInput {
			return v.refuse(CodeInterface, e, "%%%d is no input", w)
		}
		if v.m.Version >= version14 && i.flags&inInterface != 0 {
			return v.refuse(CodeInterface, e, "%%%d twice", w)
		}
		i.flags |= inInterface
	}

	if r := v.modes(); r != nil {
		return r
	}

	return v.workgroupSize()
}

// kept are modes that promise of floats what the engines do anyway, with the
// capabilities that they need.
var kept = map[spirv.ExecutionMode]spirv.Capability{
	spirv.ExecutionModeDenormPreserve:           spirv.CapabilityDenormPreserve,
	spirv.ExecutionModeSignedZeroInfNanPreserve: spirv.CapabilitySignedZeroInfNanPreserve,
	spirv.ExecutionModeRoundingModeRTE:          spirv.CapabilityRoundingModeRTE,
}

func (v *verifier) modes() *program.Refusal {
	e := v.entry.Arg(1)
	for i := range v.m.Modes {
		in := &v.m.Modes[i]
		if in.Arg(0) != e {
			if !slices.ContainsFunc(v.m.EntryPoints, func(o spirv.Inst) bool { return o.Arg(1) == in.Arg(0) }) {
				return v.refuse(CodeInterface, in, "%%%d is no entry point", in.Arg(0))
			}
			continue // of another one
		}

		switch mode := spirv.ExecutionMode(in.Arg(1)); {
		case mode == spirv.ExecutionModeLocalSize && in.Op == spirv.OpExecutionMode:
			if v.iface.block.in != nil {
				return v.refuse(CodeNoMode, in, "a second workgroup size")
			}
			v.iface.block.in = in
			for i := range v.iface.block.n {
				v.iface.block.n[i] = uint32(in.Arg(2 + i))
			}

		case mode == spirv.ExecutionModeLocalSizeId && in.Op == spirv.OpExecutionModeId:
			if v.iface.block.in != nil {
				return v.refuse(CodeNoMode, in, "a second workgroup size")
			}
			if r := v.dimensions(in, []spirv.ID{in.Arg(2), in.Arg(3), in.Arg(4)}); r != nil {
				return r
			}

		case mode == spirv.ExecutionModeSubgroupUniformControlFlowKHR && in.Op == spirv.OpExecutionMode:
			// Lanes come together at the merge block of each construct as it is.
		case kept[mode] != 0 && in.Op == spirv.OpExecutionMode:
			if !v.caps[kept[mode]] {
				return v.refuse(CodeNeeds, in, "execution mode %v needs capability %v", mode, kept[mode])
			}

		default:
			return v.refuse(CodeMode, in, "execution mode %v is outside the profile", mode)
		}
	}

	return nil
}

// dimensions takes the workgroup's size from three constants.
func (v *verifier) dimensions(in *spirv.Inst, ids []spirv.ID) *program.Refusal {
	v.iface.block = workgroup{in: in}
	for i, id := range ids {
		c := v.constant(id)
		if c == nil || c.typ.kind != kInt || c.typ.width != 32 {
			return v.refuse(CodeDimensions, in, "%%%d is no constant 32-bit integer", id)
		}

		v.iface.block.n[i] = uint32(c.bits)
		if c.deps&depShared != 0 {
			return v.refuse(CodeSpecID, in, "the workgroup's size depends on the dynamic array's")
		}
		if c.deps&depBlock == 0 {
			continue
		}

		if d := v.dec(id, spirv.DecorationSpecId); d == nil || v.roles.dimension(uint32(d.Arg(2))) != i {
			return v.refuse(CodeSpecID, in, "dimension %d of the workgroup is computed from another one, which the launch decides", i)
		}

		v.iface.block.ids[i] = id
	}

	return nil
}

// workgroupSize finds the constant with the built-in, and checks the size.
func (v *verifier) workgroupSize() *program.Refusal {
	var found *spirv.Inst
	for i := range v.m.Annotations {
		in := &v.m.Annotations[i]
		if in.Op != spirv.OpDecorate || spirv.Decoration(in.Arg(1)) != spirv.DecorationBuiltIn || v.info(in.Arg(0)).what != isConstant {
			continue
		}

		c := v.constant(in.Arg(0))
		if b := spirv.BuiltIn(in.Arg(2)); b != spirv.BuiltInWorkgroupSize {
			return v.refuse(CodeBuiltIn, in, "built-in %v on a constant", b)
		}
		if found != nil {
			return v.refuse(CodeNoMode, in, "a second WorkgroupSize")
		}
		if found = in; !c.typ.isVector(kInt) || c.typ.n != 3 || c.typ.width != 32 {
			return v.refuse(CodeDimensions, in, "WorkgroupSize is a vector of three 32-bit integers")
		}
		if c.form != compositeForm {
			return v.refuse(CodeDimensions, in, "WorkgroupSize is not made of three constants")
		}
		if r := v.dimensions(c.in, []spirv.ID{c.in.Arg(0), c.in.Arg(1), c.in.Arg(2)}); r != nil {
			return r
		}
	}

	if v.iface.block.in == nil {
		return v.refuse(CodeNoMode, v.entry, "no LocalSize, LocalSizeId or WorkgroupSize")
	}

	if r := v.manifestBlock(); r != nil {
		return r
	}

	threads := uint64(1)
	for _, n := range v.iface.block.n {
		if threads = min(1<<31, threads*uint64(n)); n == 0 {
			return v.refuse(CodeBlock, v.iface.block.in, "a workgroup of %v lanes", v.iface.block.n)
		}
	}

	if threads > uint64(v.lim.BlockThreads) {
		return v.refuse(CodeBlock, v.iface.block.in, "a workgroup of %d×%d×%d lanes; the limit is %d", v.iface.block.n[0], v.iface.block.n[1], v.iface.block.n[2], v.lim.BlockThreads)
	}

	return nil
}
