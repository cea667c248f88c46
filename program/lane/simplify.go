package lane

import "capgpu/program/spirv"

// simplify finds an existing value, or a constant, that equals an instruction.
func (f *fn) simplify(v val) (val, bool) {
	i := f.ins[v]
	if i.void || effects(&i) || i.op == iPhi {
		return 0, false
	}
	return f.foldOrSimplify(&i)
}

func (f *fn) foldOrSimplify(i *ins) (val, bool) {
	if v, ok := f.fold(i); ok {
		return v, true
	}
	if len(i.args) != 2 && i.op != op(spirv.OpSelect) {
		return 0, false
	}

	a, b := i.args[0], i.args[1]
	isWord := func(v val, n uint64) bool {
		c, ok := f.isConst(v)
		return ok && c == n
	}

	switch i.op {
	case op(spirv.OpIAdd), op(spirv.OpBitwiseOr), op(spirv.OpBitwiseXor):
		switch {
		case isWord(a, 0):
			return b, true
		case isWord(b, 0):
			return a, true
		}

	case op(spirv.OpISub), op(spirv.OpShiftLeftLogical), op(spirv.OpShiftRightLogical), op(spirv.OpShiftRightArithmetic):
		if isWord(b, 0) {
			return a, true
		}

	case op(spirv.OpIMul):
		switch {
		case isWord(a, 0), isWord(b, 1):
			return a, true
		case isWord(b, 0), isWord(a, 1):
			return b, true
		}

	case op(spirv.OpUDiv):
		if isWord(b, 1) {
			return a, true
		}

	case op(spirv.OpSelect):
		switch {
		case i.args[1] == i.args[2]:
			return b, true
		case isWord(a, 0):
			return i.args[2], true
		case isWord(a, 1<<32-1):
			return b, true
		}
	}

	return 0, false
}

// folder runs single instructions on constants.
type folder struct{ w *Worker }

// fold computes an instruction with only constant arguments, by the function that
// the engine would run.
func (f *fn) fold(i *ins) (val, bool) {
	if i.op >= iNone && (i.op < iMulAdd || i.op > iConvert || i.op == iMulLoads) || len(i.args) == 0 || len(i.args) > 4 {
		return 0, false
	}

	for _, a := range i.args {
		if _, ok := f.isConst(a); !ok {
			return 0, false
		}
	}

	if f.folding == nil {
		w := &Worker{}
		w.setRegs(8, 0, 8, 0, 1)
		f.folding = &folder{w}
	}

	w := f.folding.w
	for k, a := range i.args {
		w.s[1+k] = uint32(f.ins[a].imm)
		w.sq[1+k] = f.ins[a].imm
	}

	g := gen{f: f, reg: func(k int) int32 { return int32(1 + k) }, dst: 0}
	run := g.pure(i)
	if run == nil {
		return 0, false
	}

	run(w)
	if i.wide {
		return f.constant(w.sq[0], true), true
	}

	return f.constant(uint64(w.s[0]), false), true
}
