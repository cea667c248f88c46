package instrument

import (
	"capgpu/outcome"
	"capgpu/program/spirv"
)

// place is the target of a pointer: a variable or parameter, and the way into it.
type place struct {
	root spirv.ID
	path []spirv.ID
}

// term is an index that is not known before the program runs.
type term struct {
	index   spirv.ID // as an unsigned 32-bit integer
	operand int      // of the access chain
	stride  uint64
	bound   spirv.ID // 0: the binding's end
}

// follow records an access chain, or the copy of a pointer; neither is emitted.
// Each access makes its own chain, of indices that are in range.
func (r *rewriter) follow(in *spirv.Inst) {
	p := r.placeOf(in.Arg(0))
	p.path = p.path[:len(p.path):len(p.path)]
	if in.Op != spirv.OpCopyObject {
		for k := 1; k < len(in.Args); k++ {
			p.path = append(p.path, in.Arg(k))
		}
	}
	if parts := r.parts[p.root]; parts != nil && len(p.path) > 0 {
		n, ok := r.fixedValue(p.path[0])
		if !ok || n >= uint64(len(parts)) {
			r.refuse(in, "the index of a buffer in an array of them is computed from specialisation constants")
			n = 0
		}
		p = place{parts[n], p.path[1:]}
	}
	r.places[in.Result] = p
}

// fixedValue is the value of a constant that the launch does not decide, a
// specialisation constant's included.
func (r *rewriter) fixedValue(id spirv.ID) (uint64, bool) {
	if d := r.m.Def(id); d != nil && d.Op == spirv.OpSpecConstant {
		if v, ok := r.p.Constants[id]; ok {
			return v, true
		}
		plain := *d
		plain.Op = spirv.OpConstant
		return literal(&plain), true
	}
	return r.value(id)
}

func (r *rewriter) placeOf(pointer spirv.ID) place {
	if p, ok := r.places[pointer]; ok {
		return p
	}
	return place{root: pointer}
}

// checked is a pointer with indices that were compared.
type checked struct {
	chain spirv.ID
	ok    spirv.ID // of a buffer: all of it is within the binding
}

// access is a pointer for an access of all that pointer leads to, checked. A second
// access by the same pointer in a block needs no second check.
func (r *rewriter) access(in *spirv.Inst, pointer spirv.ID) checked {
	if p, ok := r.checked[pointer]; ok {
		return p
	}
	p := r.check(in, pointer)
	r.checked[pointer] = p
	return p
}

func (r *rewriter) check(in *spirv.Inst, pointer spirv.ID) checked {
	p := r.placeOf(pointer)
	root := r.typeOf(p.root)
	s := spaceOf(root.class)
	at, off, terms := r.walk(s, laid{typ: root.elem}, p.path)
	operands := append([]spirv.ID(nil), p.path...)

	ok := r.inRange(terms, operands)
	if s == inBuffer {
		ok = r.inBinding(r.bindings[p.root], ok, off, at, terms, operands)
	}

	if ok != 0 {
		st := site{kind: outcome.OutOfBounds, binding: outcome.NoBinding, off: off, source: r.m.Source(in.Line)}
		if s == inBuffer {
			st.binding = uint16(r.bindings[p.root])
			st.value = at
		}

		var indices []spirv.ID
		for _, t := range terms {
			bound := uint64(0)
			if t.bound != 0 {
				bound = r.bounds[t.bound]
			}
			st.terms = append(st.terms, siteTerm{t.stride, bound})
			indices = append(indices, t.index)
		}

		r.note(ok, st, indices)
	}

	c := checked{chain: p.root}
	if s == inBuffer {
		c.ok = ok
	}
	if len(operands) > 0 {
		c.chain = r.op(spirv.OpAccessChain, r.pointer(root.class, at.id), append([]spirv.ID{p.root}, operands...)...)
	}
	return c
}

// walk follows a path from a type: what is there, the offset that constants make,
// and the other indices. An index that is constant, and out of range, is one too.
func (r *rewriter) walk(s space, t laid, path []spirv.ID) (at laid, off uint64, terms []term) {
	for k, id := range path {
		c, isConst := r.value(id)
		if t.op == spirv.OpTypeStruct {
			off += r.memberOff(s, t.typ, int(c))
			t = r.part(s, t, int(c))
			continue
		}

		stride := r.stride(s, t)
		switch {
		case isConst && t.n != 0 && c < uint64(t.n):
			off += c * stride
		case t.op == spirv.OpTypeRuntimeArray:
			terms = append(terms, term{r.index(id), k, stride, 0})
		default:
			terms = append(terms, term{r.index(id), k, stride, r.bound(t.typ)})
		}
		t = r.part(s, t, 0)
	}
	return t, off, terms
}

// index is an index as 32 bits. One that does not fit becomes the greatest one,
// which is out of range everywhere.
func (r *rewriter) index(id spirv.ID) spirv.ID {
	t := r.typeOf(id)
	switch {
	case t.width == 64:
		low := r.op(spirv.OpUConvert, r.u32(), id)
		high := r.op(spirv.OpShiftRightLogical, t.id, id, r.word(32))
		fits := r.op(spirv.OpIEqual, r.boolean(), high, r.number(t, 0))
		return r.op(spirv.OpSelect, r.u32(), fits, low, r.word(1<<32-1))
	case t.width < 32:
		return r.extend(id)
	case t.signed:
		return r.op(spirv.OpBitcast, r.u32(), id)
	}
	return id
}

// extend is an integer of 8 or 16 bits as 32, by its sign.
func (r *rewriter) extend(id spirv.ID) spirv.ID {
	if t := r.typeOf(id); t.signed {
		return r.op(spirv.OpBitcast, r.u32(), r.op(spirv.OpSConvert, r.declared(spirv.OpTypeInt, 32, 1), id))
	}
	return r.op(spirv.OpUConvert, r.u32(), id)
}

// bound is the length of an array or vector.
func (r *rewriter) bound(t *typ) spirv.ID {
	if t.n != 0 {
		id := r.word(t.n)
		r.bounds[id] = uint64(t.n)
		return id
	}
	return r.index(t.length)
}

// asWord is a 32-bit integer as an unsigned one.
func (r *rewriter) asWord(id spirv.ID) spirv.ID {
	if r.typeOf(id).signed {
		return r.op(spirv.OpBitcast, r.u32(), id)
	}
	return id
}

// inRange compares the indices with the lengths of their arrays, and puts 0 in
// place of those beyond; 0 if there is nothing to compare.
func (r *rewriter) inRange(terms []term, operands []spirv.ID) (ok spirv.ID) {
	for _, t := range terms {
		if t.bound == 0 {
			continue
		}
		in := r.op(spirv.OpULessThan, r.boolean(), t.index, t.bound)
		operands[t.operand] = r.op(spirv.OpSelect, r.u32(), in, t.index, r.word(0))
		ok = r.and(ok, in)
	}
	return ok
}

func (r *rewriter) and(a, b spirv.ID) spirv.ID {
	if a == 0 {
		return b
	}
	return r.op(spirv.OpLogicalAnd, r.boolean(), a, b)
}

// inBinding compares the end of an access with that of its binding. Where it is
// beyond, the index into the array without a length becomes 0.
func (r *rewriter) inBinding(binding uint32, ok spirv.ID, off uint64, at laid, terms []term, operands []spirv.ID) spirv.ID {
	need := off + r.extent(at)

	// Offsets of the other indices, which are in range by now: the fixed part of a
	// block is at most 1 GiB.
	end := spirv.ID(0)
	var open *term
	for k := range terms {
		t := &terms[k]
		if t.bound == 0 {
			open = t
			continue
		}
		part := r.op(spirv.OpIMul, r.u32(), operands[t.operand], r.word(uint32(t.stride)))
		if end == 0 {
			end = r.word(uint32(need))
		}
		end = r.op(spirv.OpIAdd, r.u32(), end, part)
	}

	switch {
	case open == nil && end == 0:
		return r.op(spirv.OpULessThanEqual, r.boolean(), r.word(uint32(need)), r.length(binding))

	case end == 0:
		ok = r.op(spirv.OpULessThan, r.boolean(), open.index, r.count(binding, uint32(need), uint32(open.stride)))

	default:
		length := r.length(binding)
		ok = r.and(ok, r.op(spirv.OpULessThanEqual, r.boolean(), end, length))
		if open != nil {
			rest := r.op(spirv.OpISub, r.u32(), length, end)
			most := r.op(spirv.OpUDiv, r.u32(), rest, r.word(uint32(open.stride)))
			ok = r.and(ok, r.op(spirv.OpULessThanEqual, r.boolean(), open.index, most))
		}
	}

	if open != nil {
		operands[open.operand] = r.op(spirv.OpSelect, r.u32(), ok, open.index, r.word(0))
	}
	return ok
}

// length is the length of a binding in bytes.
func (r *rewriter) length(binding uint32) spirv.ID {
	if r.lengths[binding] == 0 {
		r.lengths[binding] = r.private(r.u32())
	}
	return r.load(r.u32(), r.lengths[binding])
}

// count is how many elements, of which the first ends at need, a binding has.
func (r *rewriter) count(binding, need, stride uint32) spirv.ID {
	key := countKey{binding, need, stride}
	id, ok := r.counts[key]
	if !ok {
		id = r.private(r.u32())
		r.counts[key] = id
		r.countOrder = append(r.countOrder, key)
	}
	return r.load(r.u32(), id)
}

type countKey struct{ binding, need, stride uint32 }

// arrayLength computes OpArrayLength from the length of the binding, because a
// binding without bytes has to have some on a device.
func (r *rewriter) arrayLength(in *spirv.Inst) {
	p := r.placeOf(in.Arg(0))
	t, off, _ := r.walk(inBuffer, laid{typ: r.typeOf(p.root).elem}, p.path)
	member := int(in.Args[1])
	off += r.memberOff(inBuffer, t.typ, member)
	stride := r.stride(inBuffer, r.part(inBuffer, t, member))
	n := r.count(r.bindings[p.root], uint32(off+stride), uint32(stride))
	r.opAs(in.Result, spirv.OpCopyObject, in.Type, n)
}

// loadInline loads all of the push constants: their block has a member more than
// the program knows.
func (r *rewriter) loadInline(in *spirv.Inst) {
	t := r.types[in.Type]
	parts := make([]spirv.ID, len(t.members))
	for k, m := range t.members {
		p := r.op(spirv.OpAccessChain, r.pointer(spirv.StorageClassPushConstant, m.id), r.p.Inline, r.word(uint32(k)))
		parts[k] = r.load(m.id, p)
	}
	r.opAs(in.Result, spirv.OpCompositeConstruct, in.Type, parts...)
}
