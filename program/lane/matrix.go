package lane

import "capgpu/program/spirv"

// Matrices are their columns, one after the other, each with a component for each row.

// columns parts a matrix.
func (l *lowerer) columns(t *tinfo, v []val) [][]val {
	rows := t.elem.n
	out := make([][]val, t.n)
	for i := range out {
		out[i] = l.cut(v, i*rows, rows)
	}
	return out
}

func (l *lowerer) matrix(in *spirv.Inst, t *tinfo) []val {
	a := l.operand(in.Arg(0), false)
	ta := l.typ(l.typeOf(in.Arg(0)))
	var b []val
	var tb *tinfo
	if len(in.Args) > 1 {
		b, tb = l.operand(in.Arg(1), false), l.typ(l.typeOf(in.Arg(1)))
	}

	wide := l.f.ins[a[0]].wide
	mul := func(x, y val) val { return l.spv(spirv.OpFMul, wide, x, y) }
	// times is a matrix times a vector: the products of each row, summed from the
	// first column on.
	times := func(m [][]val, v []val) []val {
		return l.each(m[0], func(r int, _ val) val {
			row := make([]val, len(m))
			for c := range m {
				row[c] = m[c][r]
			}
			l.same(row, v)
			return l.dot(row, v)
		})
	}

	var out []val
	switch in.Op {
	case spirv.OpMatrixTimesScalar:
		out = l.each(a, func(_ int, x val) val { return mul(x, b[0]) })

	case spirv.OpVectorTimesMatrix:
		for _, column := range l.columns(tb, b) {
			l.same(a, column)
			out = append(out, l.dot(a, column))
		}

	case spirv.OpMatrixTimesVector:
		out = times(l.columns(ta, a), b)
	case spirv.OpMatrixTimesMatrix:
		for _, column := range l.columns(tb, b) {
			out = append(out, times(l.columns(ta, a), column)...)
		}

	case spirv.OpOuterProduct:
		for _, y := range b {
			out = append(out, l.each(a, func(_ int, x val) val { return mul(x, y) })...)
		}

	case spirv.OpTranspose:
		m := l.columns(ta, l.value(in.Arg(0)))
		for r := range m[0] {
			for c := range m {
				out = append(out, m[c][r])
			}
		}
		return out
	}

	return l.result(t, out)
}

// determinant expands along the first column, the terms summed from the first row on.
func (l *lowerer) determinant(m [][]val) val {
	if len(m) == 1 {
		return m[0][0]
	}

	wide := l.f.ins[m[0][0]].wide
	sum := val(0)
	for r, x := range m[0] {
		term := l.spv(spirv.OpFMul, wide, x, l.determinant(minor(m, 0, r)))
		switch {
		case r == 0:
			sum = term
		case r%2 == 1:
			sum = l.spv(spirv.OpFSub, wide, sum, term)
		default:
			sum = l.spv(spirv.OpFAdd, wide, sum, term)
		}
	}

	return sum
}

// minor is a matrix without a column and a row.
func minor(m [][]val, column, row int) [][]val {
	var out [][]val
	for c := range m {
		if c == column {
			continue
		}
		var v []val
		for r := range m[c] {
			if r != row {
				v = append(v, m[c][r])
			}
		}
		out = append(out, v)
	}
	return out
}

// inverse is the transposed matrix of cofactors, each divided by the determinant.
func (l *lowerer) inverse(m [][]val) []val {
	wide := l.f.ins[m[0][0]].wide
	d := l.determinant(m)
	var out []val
	for c := range m {
		for r := range m {
			x := l.determinant(minor(m, r, c))
			if (c+r)%2 == 1 {
				x = l.spv(spirv.OpFNegate, wide, x)
			}
			out = append(out, l.spv(spirv.OpFDiv, wide, x, d))
		}
	}
	return out
}
