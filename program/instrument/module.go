package instrument

import (
	"encoding/binary"
	"slices"

	"capgpu/program/spirv"
)

// dropped are decorations that say nothing, or would let a compiler depart from
// what the lane engine does.
var dropped = []spirv.Decoration{
	spirv.DecorationRelaxedPrecision, spirv.DecorationNoSignedWrap, spirv.DecorationNoUnsignedWrap,
	spirv.DecorationUserSemantic, spirv.DecorationUserTypeGOOGLE,
}

// kept are the extensions that mean something to a device.
var kept = []string{
	"SPV_KHR_storage_buffer_storage_class", "SPV_KHR_16bit_storage", "SPV_KHR_8bit_storage",
	"SPV_KHR_vulkan_memory_model", "SPV_EXT_shader_atomic_float_add",
	"SPV_KHR_integer_dot_product", "SPV_KHR_float_controls", "SPV_KHR_subgroup_uniform_control_flow",
}

// builtIn loads an input of n words.
func (r *rewriter) builtIn(b spirv.BuiltIn, n int) (parts []spirv.ID) {
	id := r.input(b, n)
	var t *typ
	if d := r.m.Def(id); d != nil {
		t = r.types[d.Type].elem
	}

	u := r.u32()
	if t == nil {
		v := r.load(r.vector(u, uint32(n)), id)
		return r.split(u, v, n)
	}

	parts = r.split(t.scalar().id, r.load(t.id, id), n)
	for k := range parts {
		if t.scalar().signed {
			parts[k] = r.op(spirv.OpBitcast, u, parts[k])
		}
	}
	return parts
}

func (r *rewriter) split(t, v spirv.ID, n int) (parts []spirv.ID) {
	if n == 1 {
		return []spirv.ID{v}
	}
	for k := range n {
		id := r.newID()
		r.body.put(spirv.OpCompositeExtract, uint32(t), uint32(id), uint32(v), uint32(k))
		parts = append(parts, id)
	}
	return parts
}

// input is the variable of a built-in: the module's, or a new one. An entry point
// has one of each.
func (r *rewriter) input(b spirv.BuiltIn, n int) spirv.ID {
	if r.inputs == nil {
		r.inputs = make(map[spirv.BuiltIn]spirv.ID)
		listed := make(map[uint32]bool)
		for _, id := range r.listed() {
			listed[id] = true
		}
		for i := range r.m.Globals {
			in := &r.m.Globals[i]
			if in.Op != spirv.OpVariable || spirv.StorageClass(in.Args[0]) != spirv.StorageClassInput {
				continue
			}
			if d, ok := r.m.Decoration(in.Result, spirv.DecorationBuiltIn); ok {
				have := spirv.BuiltIn(d.Args[2])
				if r.inputs[have] == 0 || listed[uint32(in.Result)] {
					r.inputs[have] = in.Result
				}
			}
		}
	}

	id := r.inputs[b]
	if id == 0 {
		id = r.newID()
		r.inputs[b] = id
		class := spirv.StorageClassInput
		r.late.put(spirv.OpVariable, words(r.pointer(class, r.vector(r.u32(), uint32(n))), id, uint32(class))...)
		r.decorate(id, spirv.DecorationBuiltIn, uint32(b))
	}

	if !slices.Contains(r.added, id) {
		r.added = append(r.added, id)
	}
	return id
}

// listed is the interface of the module's entry point.
func (r *rewriter) listed() []uint32 {
	e := r.entryInst()
	_, n := spirv.Text(e.Args[2:])
	return e.Args[2+n:]
}

// entryInst is the OpEntryPoint of the program's entry.
func (r *rewriter) entryInst() *spirv.Inst {
	for i := range r.m.EntryPoints {
		if e := &r.m.EntryPoints[i]; e.Arg(1) == r.p.Entry.ID() {
			return e
		}
	}
	return &r.m.EntryPoints[0]
}

// module puts the sections together.
func (r *rewriter) module() []byte {
	var c code
	for i := range r.m.Capabilities {
		c.copy(&r.m.Capabilities[i])
	}

	storage := r.m.Version >= 0x00010300
	for i := range r.m.Extensions {
		name, _ := spirv.Text(r.m.Extensions[i].Args)
		if slices.Contains(kept, name) {
			c.copy(&r.m.Extensions[i])
			storage = storage || name == kept[0]
		}
	}
	if !storage {
		c.put(spirv.OpExtension, text(kept[0])...)
	}

	for i := range r.m.Imports {
		if r.m.IsGLSL(r.m.Imports[i].Result) {
			c.copy(&r.m.Imports[i])
		}
	}

	c.copy(&r.m.MemoryModel)
	r.entryPoint(&c)
	for i := range r.m.Modes {
		if r.m.Modes[i].Arg(0) == r.p.Entry.ID() {
			c.copy(&r.m.Modes[i])
		}
	}

	r.decorations(&c)
	for _, part := range []code{r.annotations, r.globals, r.late, r.body} {
		c = append(c, part...)
	}

	out := make([]byte, 0, 4*len(c)+20)
	for _, w := range append([]uint32{0x07230203, r.m.Version, 0, uint32(r.next), 0}, c...) {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

// entryPoint writes OpEntryPoint with the interface: from SPIR-V 1.4 on all
// variables outside functions, before that the inputs.
func (r *rewriter) entryPoint(c *code) {
	e := r.entryInst()
	_, n := spirv.Text(e.Args[2:])
	args := slices.Clone(e.Args[:2+n])
	seen := make(map[uint32]bool)
	list := slices.Clone(r.listed())
	for _, id := range r.added {
		if d := r.m.Def(id); r.m.Version >= 0x00010400 || d != nil || r.isInput(id) {
			list = append(list, uint32(id))
		}
	}

	for _, id := range list {
		if !seen[id] && r.parts[spirv.ID(id)] == nil {
			seen[id] = true
			args = append(args, id)
		}
	}
	c.put(spirv.OpEntryPoint, args...)
}

func (r *rewriter) isInput(id spirv.ID) bool {
	for _, have := range r.inputs {
		if have == id {
			return true
		}
	}
	return false
}

// decorations copies the module's, but for those dropped and those of what is not
// there any more.
func (r *rewriter) decorations(c *code) {
	for i := range r.m.Annotations {
		in := &r.m.Annotations[i]
		d := 1
		switch in.Op {
		case spirv.OpDecorate:
		case spirv.OpMemberDecorate:
			d = 2
		default:
			continue
		}

		if slices.Contains(dropped, spirv.Decoration(in.Args[d])) || r.gone(in.Arg(0)) {
			continue
		}
		if n, ok := r.bindings[in.Arg(0)]; ok && d == 1 {
			r.decorateBuffer(c, in, n)
			continue
		}
		c.copy(in)
	}
}

// gone reports that an id is not in the rewritten module.
func (r *rewriter) gone(id spirv.ID) bool {
	d := r.m.Def(id)
	if d == nil {
		return false // a label
	}
	if r.parts[id] != nil {
		return true
	}
	switch d.Op {
	case spirv.OpAccessChain, spirv.OpInBoundsAccessChain, spirv.OpString:
		return true
	case spirv.OpCopyObject:
		return r.types[d.Type].op == spirv.OpTypePointer
	case spirv.OpExtInst:
		return !r.m.IsGLSL(d.Arg(0))
	case spirv.OpExtInstImport:
		return !r.m.IsGLSL(id)
	}
	return false
}

// text is a string as words.
func text(s string) []uint32 {
	out := make([]uint32, len(s)/4+1)
	for i := range len(s) {
		out[i/4] |= uint32(s[i]) << (8 * (i % 4))
	}
	return out
}
