package lane

import "capgpu/program/spirv"

// constant is the leaves of a constant of the module, with the launch's and the
// manifest's specialisation.
func (l *lowerer) constant(id spirv.ID) ([]val, bool) {
	if v, ok := l.globals[id]; ok {
		return v, v != nil
	}
	d := l.m.Def(id)
	if d == nil {
		return nil, false
	}
	l.globals[id] = nil // a constant that contains itself is invalid
	v := l.makeConstant(d)
	if v == nil {
		delete(l.globals, id)
		return nil, false
	}
	l.globals[id] = v
	return v, true
}

// constantBits is the value of a scalar constant.
func (l *lowerer) constantBits(id spirv.ID) (uint64, bool) {
	v, ok := l.constant(id)
	if !ok || len(v) != 1 {
		return 0, false
	}
	return l.f.isConst(v[0])
}

func (l *lowerer) makeConstant(d *spirv.Inst) []val {
	switch d.Op {
	case spirv.OpConstant, spirv.OpSpecConstant:
		t := l.typ(d.Type)
		bits := uint64(d.Args[0])
		if len(d.Args) > 1 {
			bits |= uint64(d.Args[1]) << 32
		}
		if d.Op == spirv.OpSpecConstant {
			bits = l.special(d.Result, bits)
		}
		if t.width < 64 {
			bits &= 1<<t.width - 1
		}
		return []val{l.f.constant(bits, t.wide)}

	case spirv.OpConstantTrue, spirv.OpConstantFalse, spirv.OpSpecConstantTrue, spirv.OpSpecConstantFalse:
		bits := uint64(0)
		if d.Op == spirv.OpConstantTrue || d.Op == spirv.OpSpecConstantTrue {
			bits = 1
		}
		if d.Op == spirv.OpSpecConstantTrue || d.Op == spirv.OpSpecConstantFalse {
			bits = l.special(d.Result, bits)
		}
		if bits != 0 {
			bits = 1<<32 - 1
		}
		return []val{l.f.constant(bits, false)}

	case spirv.OpConstantNull, spirv.OpUndef:
		return l.zero(d.Type)
	case spirv.OpConstantComposite, spirv.OpSpecConstantComposite:
		v := []val{}
		for i := range d.Args {
			p, ok := l.constant(d.Arg(i))
			if !ok || len(v) > maxLeaves {
				return nil
			}
			v = append(v, p...)
		}
		return v

	case spirv.OpSpecConstantOp:
		if len(d.Args) == 0 {
			return nil
		}
		in := &spirv.Inst{Op: spirv.Opcode(d.Args[0]), Type: d.Type, Result: d.Result, Args: d.Args[1:], Off: d.Off, Line: d.Line}
		var v []val
		l.apart(func() { v = l.compute(in) })
		for _, x := range v {
			if _, ok := l.f.isConst(x); !ok {
				fail(d, "SPV-2901", "a constant whose value is not known")
			}
		}
		return v
	}
	return nil
}

// apart runs f outside of all functions.
func (l *lowerer) apart(f func()) {
	fr, src := l.fr, l.src
	l.fr = nil
	f()
	l.fr, l.src = fr, src
}

// special is the value of a specialisation constant.
func (l *lowerer) special(id spirv.ID, bits uint64) uint64 {
	if id == l.p.Dynamic && id != 0 {
		return uint64(l.o.SharedBytes / max(1, l.p.Info.DynamicElementBytes))
	}
	if d, ok := l.p.Sizes[id]; ok {
		return uint64([3]uint32{l.o.Block.X, l.o.Block.Y, l.o.Block.Z}[d])
	}
	if v, ok := l.p.Constants[id]; ok {
		return v
	}
	return bits
}

// zero is the zero value of a type.
func (l *lowerer) zero(typ spirv.ID) []val {
	t := l.typ(typ)
	if t.leaves > maxLeaves {
		fail(l.src, "SPV-2900", "a value of %d scalars", t.leaves)
	}
	v := make([]val, 0, t.leaves)
	l.leafVisit(classPrivate, t, 0, func(t *tinfo, _ uint64) { v = append(v, l.f.constant(0, t.wide)) })
	return v
}
