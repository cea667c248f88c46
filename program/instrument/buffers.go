package instrument

import (
	"slices"

	"capgpu/program/spirv"
)

// numberBuffers finds the number of each buffer's variable, and the arrays of buffers.
func (r *rewriter) numberBuffers() {
	r.parts, r.own = make(map[spirv.ID][]spirv.ID), make(map[spirv.ID]*typ)
	r.users = make([]int, len(r.p.Info.Bindings))
	for i := range r.m.Globals {
		in := &r.m.Globals[i]
		if in.Op != spirv.OpVariable {
			continue
		}
		n := r.p.Binding(in.Result)
		if n < 0 {
			continue
		}

		r.bindings[in.Result] = uint32(n)
		many := 1
		if t := r.types[in.Type].elem; t.op == spirv.OpTypeArray {
			many = int(t.n)
			r.parts[in.Result] = make([]spirv.ID, many)
		}
		for k := range many {
			r.users[n+k]++
		}
	}
}

// splitArrays makes a variable of each buffer in an array of them, for each index
// is a constant.
func (r *rewriter) splitArrays() {
	for i := range r.m.Globals {
		in := &r.m.Globals[i]
		parts := r.parts[in.Result]
		if in.Op != spirv.OpVariable || parts == nil {
			continue
		}

		pointer := r.types[in.Type]
		for k := range parts {
			id := r.newID()
			parts[k] = id
			r.own[id] = &typ{op: spirv.OpTypePointer, class: pointer.class, elem: pointer.elem.elem}
			r.late.put(spirv.OpVariable, words(r.pointer(pointer.class, pointer.elem.elem.id), id, uint32(pointer.class))...)
			r.added = append(r.added, id)
			n := r.bindings[in.Result] + uint32(k)
			r.bindings[id] = n
			for j := range r.m.Annotations {
				if d := &r.m.Annotations[j]; d.Op == spirv.OpDecorate && d.Arg(0) == in.Result && !slices.Contains(dropped, spirv.Decoration(d.Args[1])) {
					own := *d
					own.Args = append([]uint32{uint32(id)}, d.Args[1:]...)
					r.decorateBuffer(&r.annotations, &own, n)
				}
			}
		}
	}
}

// decorateBuffer copies a decoration of a buffer's variable: it is in set 0, and
// its number is the binding. Views of one buffer may alias each other.
func (r *rewriter) decorateBuffer(c *code, in *spirv.Inst, n uint32) {
	id := in.Arg(0)
	switch spirv.Decoration(in.Args[1]) {
	case spirv.DecorationDescriptorSet:
		c.put(in.Op, words(id, uint32(spirv.DecorationDescriptorSet), uint32(0))...)
	case spirv.DecorationBinding:
		c.put(in.Op, words(id, uint32(spirv.DecorationBinding), n)...)
		if r.users[n] > 1 {
			c.put(in.Op, words(id, uint32(spirv.DecorationAliased))...)
		}
	case spirv.DecorationRestrict, spirv.DecorationAliased:
		if r.users[n] == 1 {
			c.copy(in)
		}
	default:
		c.copy(in)
	}
}

// copyMemory is a load and a store, each with its memory operands.
func (r *rewriter) copyMemory(in *spirv.Inst) {
	forStore, forLoad := 0, 0
	if len(in.Args) > 2 {
		forStore, forLoad = 2, 2
	}
	if second := in.SecondMask(); second != 0 {
		forLoad = second
	}

	v := r.newID()
	t := r.typeOf(in.Arg(0)).elem.id
	load := append([]uint32{in.Args[1]}, operandsFor(in, forLoad, spirv.MemoryAccessMakePointerVisible)...)
	store := append([]uint32{in.Args[0], uint32(v)}, operandsFor(in, forStore, spirv.MemoryAccessMakePointerAvailable)...)
	r.inst(&spirv.Inst{Op: spirv.OpLoad, Type: t, Result: v, Args: load, Line: in.Line, Off: in.Off})
	r.inst(&spirv.Inst{Op: spirv.OpStore, Args: store, Line: in.Line, Off: in.Off})
}

// operandsFor are the memory operands of a load or store from the mask at args[i] of a
// copy: how it is made visible or available, if it is, and Volatile.
func operandsFor(in *spirv.Inst, i int, model spirv.MemoryAccess) []uint32 {
	if i == 0 {
		return nil
	}

	mask := spirv.MemoryAccess(in.Args[i])
	at := i + 1
	if mask&spirv.MemoryAccessAligned != 0 {
		at++
	}
	if mask&spirv.MemoryAccessMakePointerAvailable != 0 && model != spirv.MemoryAccessMakePointerAvailable {
		at++
	}
	out := []uint32{uint32(mask & (spirv.MemoryAccessVolatile | spirv.MemoryAccessNonPrivatePointer | model))}
	if mask&model != 0 {
		out = append(out, in.Args[at])
	}
	return out
}
