package lanetest

import "capgpu/program/spirv"

// at is the component of a matrix in a column and row.
func at(m value, column, row int) uint64 { return m.parts[column].parts[row].bits }

// matrixOf makes a matrix, or a vector, of its components. Halves are computed as f32.
func matrixOf(t *typ, width uint64, f func(column, row int) uint64) value {
	cut := func(n uint64) value {
		if t.scalarOfMatrix().width == 16 && width == 32 {
			return recast(value{bits: n}, 32, 16)
		}
		return value{bits: n}
	}

	parts := make([]value, t.n)
	for i := range parts {
		if t.op == spirv.OpTypeVector {
			parts[i] = cut(f(0, i))
			continue
		}
		parts[i].parts = make([]value, t.elem.n)
		for r := range parts[i].parts {
			parts[i].parts[r] = cut(f(i, r))
		}
	}
	return value{parts: parts}
}

func (t *typ) scalarOfMatrix() *typ {
	if t.op == spirv.OpTypeMatrix {
		t = t.elem
	}
	return t.scalar()
}

// matrix is an instruction on matrices.
func matrix(op spirv.Opcode, t *typ, a, b value) value {
	w := t.scalarOfMatrix().width
	if w == 16 && op != spirv.OpTranspose {
		a, b, w = recast(a, 16, 32), recast(b, 16, 32), 32
	}

	sum := func(n int, x, y func(k int) uint64) uint64 {
		s := arithmetic(spirv.OpFMul, w, x(0), y(0))
		for k := 1; k < n; k++ {
			s = arithmetic(spirv.OpFAdd, w, s, arithmetic(spirv.OpFMul, w, x(k), y(k)))
		}
		return s
	}

	return matrixOf(t, w, func(c, r int) uint64 {
		switch op {
		case spirv.OpMatrixTimesScalar:
			return arithmetic(spirv.OpFMul, w, at(a, c, r), b.bits)
		case spirv.OpVectorTimesMatrix:
			return sum(len(a.parts), func(k int) uint64 { return a.parts[k].bits }, func(k int) uint64 { return at(b, r, k) })
		case spirv.OpMatrixTimesVector:
			return sum(len(b.parts), func(k int) uint64 { return at(a, k, r) }, func(k int) uint64 { return b.parts[k].bits })
		case spirv.OpMatrixTimesMatrix:
			return sum(len(a.parts), func(k int) uint64 { return at(a, k, r) }, func(k int) uint64 { return at(b, c, k) })
		case spirv.OpOuterProduct:
			return arithmetic(spirv.OpFMul, w, a.parts[r].bits, b.parts[c].bits)
		}
		return at(a, r, c) // OpTranspose
	})
}

// determinant is that of the rows and columns that are left of a matrix, expanded
// along the first column.
func determinant(m value, w uint64, columns, rows []int) uint64 {
	if len(columns) == 1 {
		return at(m, columns[0], rows[0])
	}

	total := uint64(0)
	for i, r := range rows {
		rest := append(append([]int{}, rows[:i]...), rows[i+1:]...)
		term := arithmetic(spirv.OpFMul, w, at(m, columns[0], r), determinant(m, w, columns[1:], rest))
		switch {
		case i == 0:
			total = term
		case i%2 == 1:
			total = arithmetic(spirv.OpFSub, w, total, term)
		default:
			total = arithmetic(spirv.OpFAdd, w, total, term)
		}
	}
	return total
}

// square is Determinant or MatrixInverse.
func square(g spirv.GLSL, t *typ, m value) value {
	w := t.scalarOfMatrix().width
	if w == 16 {
		m, w = recast(m, 16, 32), 32
	}

	all := []int{0, 1, 2, 3}[:len(m.parts)]
	without := func(i int) []int { return append(append([]int{}, all[:i]...), all[i+1:]...) }
	d := determinant(m, w, all, all)
	if g == spirv.GLSLDeterminant {
		if t.half() {
			return recast(value{bits: d}, 32, 16)
		}
		return value{bits: d}
	}

	return matrixOf(t, w, func(c, r int) uint64 {
		x := determinant(m, w, without(r), without(c))
		if (c+r)%2 == 1 {
			x = arithmetic(spirv.OpFNegate, w, x, 0)
		}
		return arithmetic(spirv.OpFDiv, w, x, d)
	})
}
