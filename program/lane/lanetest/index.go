package lanetest

import (
	"slices"

	"capgpu/outcome"
	"capgpu/program/spirv"
)

// index is the value of an index. One that does not fit 32 bits is as wrong as the
// greatest one.
func (t *thread) index(id spirv.ID) uint64 {
	n, of := t.value(id).bits, t.m.typ(t.m.module.Def(id).Type)
	if of.signed && of.width < 32 {
		n = uint64(signed(n, of.width)) & mask(32)
	}
	return min(n, mask(32))
}

// component checks the index of a component that is a value.
func (t *thread) component(in *spirv.Inst) *fault {
	var n uint64
	vector := t.m.typ(in.Type)
	switch in.Op {
	case spirv.OpVectorExtractDynamic:
		n, vector = t.index(in.Arg(1)), t.m.typ(t.m.module.Def(in.Arg(0)).Type)
	case spirv.OpVectorInsertDynamic:
		n = t.index(in.Arg(2))
	default:
		return nil
	}
	if n < uint64(vector.n) {
		return nil
	}
	return &fault{outcome.OutOfBounds, outcome.NoBinding, n * vector.elem.size(), 0}
}

// stepped is the pointer of an OpPtrAccessChain: an element on, or back, and the chain
// behind it.
func (t *thread) stepped(in *spirv.Inst) value {
	m, p := t.m, t.value(in.Arg(0)).ptr
	if p == nil {
		return value{}
	}
	of := m.typ(m.module.Def(in.Arg(1)).Type)
	element := signed(t.value(in.Arg(1)).bits, of.width)
	if of.width < 32 && !of.signed {
		element = int64(t.value(in.Arg(1)).bits)
	}
	q := &pointer{variable: p.variable, path: slices.Clone(p.path), shift: p.shift, shifted: true}
	q.shift += uint64(element) * m.stride(m.typ(m.module.Def(in.Arg(0)).Type))
	for i := 2; i < len(in.Args); i++ {
		q.path = append(q.path, t.index(in.Arg(i)))
	}
	return value{ptr: q}
}

// same reports whether two pointers lead to one place.
func (m *machine) same(p, q *pointer) bool {
	if p == nil || q == nil {
		return p == q
	}
	_, a, _, _ := m.place(p)
	_, b, _, _ := m.place(q)
	return a == b && (p.variable == q.variable || p.variable.binding == q.variable.binding && p.variable.binding != outcome.NoBinding)
}

// stride is the distance of two elements that a pointer of a type may step between.
func (m *machine) stride(t *typ) uint64 {
	if d, ok := m.module.Decoration(t.id, spirv.DecorationArrayStride); ok && t.class != spirv.StorageClassWorkgroup {
		return uint64(d.Args[2])
	}
	return up(t.elem.size(), t.elem.align())
}
