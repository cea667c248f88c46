package instrument

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// CodeFlow is the code of a refusal by Instrument: control flow from which a lane
// cannot be made to return, or a buffer that cannot be told before the pipeline is made.
const CodeFlow = "SPV-2910"

// Program is an instrumented program. It does not change.
type Program struct {
	// Module is the module, little-endian.
	Module []byte
	// Binding is the trap buffer's, in set 0, where each other buffer has its number.
	Binding uint32
	// EntryOff is where the push constants have the number of the entry, a u32, in
	// bytes; the program's own come before it. A launch has EntryOff + 4 bytes of them.
	EntryOff uint32

	sites  []site
	layout *layout
}

// Instrument rewrites an admitted program; see the package comment. The error is a
// *program.Refusal.
func Instrument(p *verify.Program) (*Program, error) { return rewrite(p, true) }

// rewrite is Instrument; without cleared, shared memory is left as it is, for tests.
func rewrite(p *verify.Program, cleared bool) (*Program, error) {
	if p.Chosen != nil {
		return nil, refuse(p.Chosen, "a pointer that is chosen when the program runs")
	}
	r := &rewriter{
		cleared: cleared,
		p:       p, m: p.Module, next: spirv.ID(p.Module.Bound), layout: newLayout(p),
		constants: make(map[constantKey]spirv.ID), splats: make(map[constantKey]spirv.ID), nulls: make(map[spirv.ID]spirv.ID),
		bindings: make(map[spirv.ID]uint32), bounds: make(map[spirv.ID]uint64), counts: make(map[countKey]spirv.ID),
	}

	r.numberBuffers()

	r.binding = uint32(len(p.Info.Bindings))
	r.copyGlobals()
	r.splitArrays()
	r.vars.site, r.vars.told, r.vars.entry = r.private(r.u32()), r.private(r.u32()), r.private(r.u32())
	r.vars.mine = r.private(r.boolean())
	r.vars.left, r.vars.rounds, r.vars.most = r.private(r.u32()), r.private(r.u32()), r.private(r.u32())
	r.declareTrap()
	r.declareInline()

	for _, f := range r.m.Functions {
		if f == p.Entry {
			continue
		}
		if err := r.writeFunction(f); err != nil {
			return nil, err
		}
	}

	if err := r.writeEntry(); err != nil {
		return nil, err
	}
	if n := len(r.vars.index); n > MaxIndices { // of limits that are not the profile's
		return nil, refuse(&p.Entry.Def, "%d indices in one access, more than %d", n, MaxIndices)
	}

	if r.refused != nil {
		return nil, r.refused
	}

	r.writeHelpers()
	return &Program{Module: r.module(), Binding: r.binding, EntryOff: r.entryOff, sites: r.sites, layout: r.layout}, nil
}

// rewriter is one module under way.
type rewriter struct {
	p *verify.Program
	m *spirv.Module
	*layout
	cleared bool

	next        spirv.ID
	annotations code
	globals     code // the module's
	late        code // ours, after them
	body        code // functions
	known       map[string]spirv.ID
	constants   map[constantKey]spirv.ID
	splats      map[constantKey]spirv.ID
	nulls       map[spirv.ID]spirv.ID
	added       []spirv.ID // variables outside functions

	refused     error                   // the first refusal
	bindings    map[spirv.ID]uint32     // by variable
	users       []int                   // variables of each binding
	parts       map[spirv.ID][]spirv.ID // of variables that are arrays of buffers
	own         map[spirv.ID]*typ       // types of those
	binding     uint32                  // the trap buffer's
	trap        spirv.ID
	inline      spirv.ID // the push constants, and in them the entry
	entryMember uint32
	entryOff    uint32
	inputs      map[spirv.BuiltIn]spirv.ID

	// Variables of the lane.
	vars struct {
		site, told, mine   spirv.ID // what happened first, what was told, whether the slot is the lane's
		entry              spirv.ID
		left, rounds, most spirv.ID // rounds until the next poll, before the last, at most
		index              []spirv.ID
	}

	helpers struct {
		note   []spirv.ID // by the number of indices
		poll   spirv.ID
		claim  spirv.ID
		record spirv.ID
	}

	lengths    [program.MaxBindings]spirv.ID
	counts     map[countKey]spirv.ID
	countOrder []countKey
	bounds     map[spirv.ID]uint64 // constants that are lengths
	sites      []site
	loops      bool

	entryVars code // of the entry point

	// The function at hand.
	inEntry bool
	result  spirv.ID
	before  map[int]*counted // loops, by the block before each
	heads   map[int]bool     // of those loops
	tails   []bool           // by block; nil if there are none
	ends    map[spirv.ID]spirv.ID
	places  map[spirv.ID]place
	begins  map[spirv.ID]begin
	checked map[spirv.ID]checked // pointers, in this block
}

// copyGlobals copies types, constants and variables.
func (r *rewriter) copyGlobals() {
	for i := range r.m.Globals {
		in := r.m.Globals[i]
		switch in.Op {
		case spirv.OpNop, spirv.OpLine, spirv.OpNoLine, spirv.OpExtInst:
			continue

		case spirv.OpUndef:
			in.Op = spirv.OpConstantNull
		case spirv.OpVariable:
			if in.Result == r.p.Inline || r.parts[in.Result] != nil {
				continue
			}
			if spirv.StorageClass(in.Args[0]) == spirv.StorageClassWorkgroup && r.cleared {
				in.Args = in.Args[:1] // all of it is cleared
			}
			if spirv.StorageClass(in.Args[0]) == spirv.StorageClassPrivate && len(in.Args) == 1 {
				in.Args = []uint32{in.Args[0], uint32(r.null(&r.globals, r.types[in.Type].elem.id))}
			}
		}
		r.globals.copy(&in)
	}

	for _, f := range r.m.Functions {
		for _, b := range f.Blocks {
			for k := range b.Insts {
				if in := b.Insts[k]; in.Op == spirv.OpUndef {
					in.Op = spirv.OpConstantNull
					r.globals.copy(&in)
				}
			}
		}
	}
}

// declareTrap declares the trap buffer.
func (r *rewriter) declareTrap() {
	slot, slots, block := r.newID(), r.newID(), r.newID()
	r.late.put(spirv.OpTypeArray, words(slot, r.u32(), r.word(SlotBytes/4))...)
	r.late.put(spirv.OpTypeRuntimeArray, words(slots, slot)...)
	r.late.put(spirv.OpTypeStruct, words(block, r.u32(), r.u32(), slots)...)
	r.decorate(slot, spirv.DecorationArrayStride, 4)
	r.decorate(slots, spirv.DecorationArrayStride, SlotBytes)
	r.decorate(block, spirv.DecorationBlock)
	for member, off := range []uint32{FirstOff, StopOff, HeadBytes} {
		r.annotations.put(spirv.OpMemberDecorate, uint32(block), uint32(member), uint32(spirv.DecorationOffset), off)
	}

	r.trap = r.newID()
	class := spirv.StorageClassStorageBuffer
	r.late.put(spirv.OpVariable, words(r.pointer(class, block), r.trap, uint32(class))...)
	r.decorate(r.trap, spirv.DecorationDescriptorSet, 0)
	r.decorate(r.trap, spirv.DecorationBinding, r.binding)
	if !r.vulkan() {
		r.decorate(r.trap, spirv.DecorationCoherent)
	}
	r.added = append(r.added, r.trap)
}

// declareInline declares the push constants: the program's, and the entry.
func (r *rewriter) declareInline() {
	r.entryOff = r.p.Info.InlineBytes
	block := r.newID()
	members := []spirv.ID{}
	offset := func(member, off uint32) {
		r.annotations.put(spirv.OpMemberDecorate, uint32(block), member, uint32(spirv.DecorationOffset), off)
	}

	if r.inline = r.p.Inline; r.inline != 0 {
		t := r.typeOf(r.inline).elem
		for _, m := range t.members {
			members = append(members, m.id)
		}
		for i := range r.m.Annotations {
			if d := &r.m.Annotations[i]; d.Op == spirv.OpMemberDecorate && d.Arg(0) == t.id && !slices.Contains(dropped, spirv.Decoration(d.Args[2])) {
				r.annotations.put(d.Op, append([]uint32{uint32(block)}, d.Args[1:]...)...)
			}
		}
	} else {
		r.inline = r.newID()
		r.added = append(r.added, r.inline)
	}

	r.entryMember = uint32(len(members))
	offset(r.entryMember, r.entryOff)
	r.decorate(block, spirv.DecorationBlock)
	r.late.put(spirv.OpTypeStruct, words(block, members, r.u32())...)
	class := spirv.StorageClassPushConstant
	r.late.put(spirv.OpVariable, words(r.pointer(class, block), r.inline, uint32(class))...)
}
