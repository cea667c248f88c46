package lanetest

import (
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
