package instrument

import (
	"math"

	"capgpu/outcome"
	"capgpu/program/spirv"
)

// divide makes an integer division defined: a divisor of zero is a trap, and the
// least number by -1 is itself, with remainder 0. Remainders of signed numbers are
// computed from the quotient, because Vulkan defines them for positive ones only.
func (r *rewriter) divide(in *spirv.Inst) {
	t := r.types[in.Type]
	a, b := in.Arg(0), in.Arg(1)
	divisor := b
	signed := in.Op == spirv.OpSDiv || in.Op == spirv.OpSRem || in.Op == spirv.OpSMod
	if !r.harmless(b, signed) {
		zero := r.op(spirv.OpIEqual, r.bools(t), b, r.number(t, 0))
		bad := zero
		if signed {
			least := r.op(spirv.OpIEqual, r.bools(t), a, r.number(t, 1<<(t.scalar().width-1)))
			minus := r.op(spirv.OpIEqual, r.bools(t), b, r.number(t, math.MaxUint64))
			bad = r.op(spirv.OpLogicalOr, r.bools(t), zero, r.op(spirv.OpLogicalAnd, r.bools(t), least, minus))
		}

		if t.op == spirv.OpTypeVector {
			zero = r.op(spirv.OpAny, r.boolean(), zero)
		}
		r.note(r.op(spirv.OpLogicalNot, r.boolean(), zero),
			site{kind: outcome.DivideByZero, binding: outcome.NoBinding, source: r.m.Source(in.Line)}, nil)
		divisor = r.op(spirv.OpSelect, t.id, bad, r.number(t, 1), r.cast(t, b))
	}

	if in.Op != spirv.OpSRem && in.Op != spirv.OpSMod {
		r.opAs(in.Result, in.Op, in.Type, a, divisor)
		return
	}

	quotient := r.op(spirv.OpSDiv, t.id, a, divisor)
	rest := r.op(spirv.OpISub, t.id, a, r.op(spirv.OpIMul, t.id, quotient, divisor))
	if in.Op == spirv.OpSRem {
		r.opAs(in.Result, spirv.OpCopyObject, t.id, rest)
		return
	}

	// The sign of the divisor.
	apart := r.op(spirv.OpSLessThan, r.bools(t), r.op(spirv.OpBitwiseXor, t.id, rest, divisor), r.number(t, 0))
	some := r.op(spirv.OpINotEqual, r.bools(t), rest, r.number(t, 0))
	r.opAs(in.Result, spirv.OpSelect, t.id, r.op(spirv.OpLogicalAnd, r.bools(t), apart, some),
		r.op(spirv.OpIAdd, t.id, rest, divisor), rest)
}

// cast is an integer as one of t, which differs in its sign at most.
func (r *rewriter) cast(t *typ, id spirv.ID) spirv.ID {
	if r.typeOf(id) == t {
		return id
	}
	return r.op(spirv.OpBitcast, t.id, id)
}

// harmless reports that a divisor is a constant that cannot go wrong.
func (r *rewriter) harmless(divisor spirv.ID, signed bool) bool {
	return r.all(divisor, func(v uint64, width uint32) bool {
		minus := uint64(math.MaxUint64) >> (64 - width)
		return v&minus != 0 && !(signed && v&minus == minus)
	})
}

// all reports that each component of an integer is a constant for which f is true.
func (r *rewriter) all(id spirv.ID, f func(v uint64, width uint32) bool) bool {
	t := r.typeOf(id)
	if t.op == spirv.OpTypeVector {
		d := r.m.Def(id)
		if d.Op != spirv.OpConstantComposite {
			return false
		}
		for k := range d.Args {
			if !r.all(d.Arg(k), f) {
				return false
			}
		}
		return true
	}

	v, ok := r.value(id)
	return ok && f(v, t.width)
}

// shift takes the amount modulo the width.
func (r *rewriter) shift(in *spirv.Inst) {
	width := r.types[in.Type].scalar().width
	amount := in.Arg(1)
	if !r.all(amount, func(v uint64, _ uint32) bool { return v < uint64(width) }) {
		t := r.typeOf(amount)
		amount = r.op(spirv.OpBitwiseAnd, t.id, amount, r.number(t, uint64(width-1)))
	}
	r.opAs(in.Result, in.Op, in.Type, in.Arg(0), amount)
}

// toInt converts a float to an integer: cut to the range of the integer, and 0 for
// NaN.
func (r *rewriter) toInt(in *spirv.Inst) {
	from, to := r.typeOf(in.Arg(0)), r.types[in.Type]
	width := to.scalar().width
	// The first number above the range, the least in it, and the integers there.
	above, least := math.Ldexp(1, int(width)), 0.0
	most, lowest := uint64(math.MaxUint64), uint64(0)
	if in.Op == spirv.OpConvertFToS {
		above, least = math.Ldexp(1, int(width)-1), -math.Ldexp(1, int(width)-1)
		most, lowest = 1<<(width-1)-1, 1<<(width-1)
	}
	if from.scalar().width == 16 { // infinities are beyond any range
		least = max(least, -maxHalf)
	}

	x := in.Arg(0)
	high := r.op(spirv.OpFOrdGreaterThanEqual, r.bools(from), x, r.real(from, above))
	in1 := r.op(spirv.OpFOrdLessThan, r.bools(from), x, r.real(from, above))
	in2 := r.op(spirv.OpFOrdGreaterThanEqual, r.bools(from), x, r.real(from, least))
	safe := r.op(spirv.OpSelect, from.id, r.op(spirv.OpLogicalAnd, r.bools(from), in1, in2), x, r.real(from, 0))
	n := r.op(in.Op, to.id, safe)
	if in.Op == spirv.OpConvertFToS {
		low := r.op(spirv.OpFOrdLessThan, r.bools(from), x, r.real(from, least))
		n = r.op(spirv.OpSelect, to.id, low, r.number(to, lowest), n)
	}
	r.opAs(in.Result, spirv.OpSelect, to.id, high, r.number(to, most), n)
}

// real is a constant float, in each component of t.
func (r *rewriter) real(t *typ, v float64) spirv.ID {
	switch t.scalar().width {
	case 64:
		return r.number(t, math.Float64bits(v))
	case 16:
		return r.number(t, half(v))
	}
	return r.number(t, uint64(math.Float32bits(float32(v))))
}

// maxHalf is the greatest number of 16 bits.
const maxHalf = 65504

// half is the bits of 0, a power of two or maxHalf, with 16 bits. Above these it is
// infinity.
func half(v float64) (bits uint64) {
	if v < 0 {
		bits, v = 1<<15, -v
	}
	switch {
	case v == 0:
		return bits
	case v == maxHalf:
		return bits | 0x7BFF
	case v > maxHalf:
		return bits | 0x7C00
	}
	return bits | uint64(math.Ilogb(v)+15)<<10
}

// bitField computes a bit field with an offset and count that are not known: SPIR-V
// defines it only within the width. Bits beyond are none.
func (r *rewriter) bitField(in *spirv.Inst) {
	n := 1
	if in.Op == spirv.OpBitFieldInsert {
		n = 2
	}

	offset, isOffset := r.value(in.Arg(n))
	count, isCount := r.value(in.Arg(n + 1))
	if isOffset && isCount && offset <= 32 && count <= 32 && offset+count <= 32 {
		r.body.copy(in)
		return
	}

	t := r.types[in.Type]
	off, many := r.spread(t, in.Arg(n)), r.spread(t, in.Arg(n+1))
	// ones has as many bits as the field; up moves to its place.
	full := r.op(spirv.OpUGreaterThanEqual, r.bools(t), many, r.number(t, 32))
	bit := r.op(spirv.OpShiftLeftLogical, t.id, r.number(t, 1), r.op(spirv.OpBitwiseAnd, t.id, many, r.number(t, 31)))
	ones := r.op(spirv.OpSelect, t.id, full, r.number(t, math.MaxUint32), r.op(spirv.OpISub, t.id, bit, r.number(t, 1)))
	gone := r.op(spirv.OpUGreaterThanEqual, r.bools(t), off, r.number(t, 32))
	by := r.op(spirv.OpBitwiseAnd, t.id, off, r.number(t, 31))
	move := func(op spirv.Opcode, v spirv.ID) spirv.ID {
		return r.op(spirv.OpSelect, t.id, gone, r.number(t, 0), r.op(op, t.id, v, by))
	}

	if in.Op == spirv.OpBitFieldInsert {
		field := move(spirv.OpShiftLeftLogical, ones)
		insert := r.op(spirv.OpBitwiseAnd, t.id, move(spirv.OpShiftLeftLogical, in.Arg(1)), field)
		rest := r.op(spirv.OpBitwiseAnd, t.id, in.Arg(0), r.op(spirv.OpNot, t.id, field))
		r.opAs(in.Result, spirv.OpBitwiseOr, t.id, rest, insert)
		return
	}

	low := r.op(spirv.OpBitwiseAnd, t.id, move(spirv.OpShiftRightLogical, in.Arg(0)), ones)
	if in.Op == spirv.OpBitFieldUExtract {
		r.opAs(in.Result, spirv.OpCopyObject, t.id, low)
		return
	}

	// The field's highest bit spreads upwards; a field of no bits is 0.
	none := r.op(spirv.OpIEqual, r.bools(t), many, r.number(t, 0))
	up := r.op(spirv.OpSelect, t.id, full, r.number(t, 0), r.op(spirv.OpISub, t.id, r.number(t, 32), many))
	up = r.op(spirv.OpSelect, t.id, none, r.number(t, 0), up)
	wide := r.op(spirv.OpShiftRightArithmetic, t.id, r.op(spirv.OpShiftLeftLogical, t.id, low, up), up)
	r.opAs(in.Result, spirv.OpSelect, t.id, none, r.number(t, 0), wide)
}

// spread is an integer of any kind as 32 bits in each component of t.
func (r *rewriter) spread(t *typ, id spirv.ID) spirv.ID {
	s := t.scalar()
	switch from := r.typeOf(id); {
	case from == s:
	case from.width < 32:
		if id = r.extend(id); s.signed {
			id = r.op(spirv.OpBitcast, s.id, id)
		}
	case from.width == 64:
		id = r.op(spirv.OpUConvert, r.u32(), id)
		if s.signed {
			id = r.op(spirv.OpBitcast, s.id, id)
		}
	default:
		id = r.op(spirv.OpBitcast, s.id, id)
	}

	if t.op != spirv.OpTypeVector {
		return id
	}
	parts := make([]spirv.ID, t.n)
	for k := range parts {
		parts[k] = id
	}
	return r.op(spirv.OpCompositeConstruct, t.id, parts...)
}

// component makes an index into a vector defined: one beyond its end is recorded;
// then the first is read, and none written.
func (r *rewriter) component(in *spirv.Inst) {
	v := r.typeOf(in.Arg(0))
	at := len(in.Args) - 1
	if c, ok := r.value(in.Arg(at)); ok && c < uint64(v.n) {
		r.body.copy(in)
		return
	}

	index := r.index(in.Arg(at))
	fits := r.op(spirv.OpULessThan, r.boolean(), index, r.word(v.n))
	r.note(fits, site{kind: outcome.OutOfBounds, binding: outcome.NoBinding, source: r.m.Source(in.Line),
		terms: []siteTerm{{stride: v.elem.size, bound: uint64(v.n)}}}, []spirv.ID{index})
	index = r.op(spirv.OpSelect, r.u32(), fits, index, r.word(0))
	if in.Op == spirv.OpVectorExtractDynamic {
		r.opAs(in.Result, in.Op, in.Type, in.Arg(0), index)
		return
	}

	old := r.op(spirv.OpVectorExtractDynamic, v.elem.id, in.Arg(0), index)
	part := r.op(spirv.OpSelect, v.elem.id, fits, in.Arg(1), old)
	r.opAs(in.Result, in.Op, in.Type, in.Arg(0), part, index)
}
