package lane

import "capgpu/program/lane/vec"

// fuseLoads combines two loads and their multiply-add, if nothing else uses the
// loads, into one instruction: the inner step of a product of matrices.
func (f *fn) fuseLoads() {
	uses := f.countUses()
	for n := range f.blocks {
		b := &f.blocks[n]
		for at, v := range b.ins {
			i := &f.ins[v]
			if i.op != iMulAdd || !f.varying(i.args[2]) {
				continue
			}
			p, q := i.args[0], i.args[1]
			if p == q || uses[p] != 1 || uses[q] != 1 || !f.areRows(p, q) || !f.adjacent(b.ins[:at], p, q) {
				continue
			}
			args := append(append([]val(nil), f.ins[p].args...), f.ins[q].args...)
			i.op, i.aux, i.imm = iMulLoads, int32(p), uint64(q)
			i.args = append(args, i.args[2])
			f.ins[p].dead, f.ins[q].dead = true, true
		}

		f.sweep(b)
	}
}

// areRows reports that one load is constant along a row of the workgroup and the
// other is a run of words, for which vec has a fast path.
func (f *fn) areRows(p, q val) bool {
	a, ok := f.alongX(p)
	b, also := f.alongX(q)
	return ok && also && a+b == 4 && a*b == 0 && f.block.X%8 == 0
}

// alongX is by how many bytes the address of a load of words advances from lane to
// lane of a row, if that is known.
func (f *fn) alongX(v val) (bytes uint64, ok bool) {
	i := &f.ins[v]
	if i.op != iLoad || !i.vary || i.mask || i.wide {
		return 0, false
	}

	m := &f.mems[i.aux]
	if m.size != 4 || m.off%4 != 0 || m.v.class == classPrivate {
		return 0, false
	}

	for _, t := range m.terms {
		if !t.affine && f.varying(i.args[t.at]) || t.stride%4 != 0 {
			return 0, false
		}
		if !t.affine || i.args[t.at+1] == 0 {
			continue
		}
		c, known := f.isConst(i.args[t.at+1])
		if !known {
			return 0, false
		}
		bytes += c * uint64(t.stride)
	}

	return bytes, true
}

// adjacent reports that after the first of two loads a block has only the second
// and instructions that cannot trap.
func (f *fn) adjacent(list []val, p, q val) bool {
	seen := 0
	for k := len(list) - 1; k >= 0; k-- {
		v := list[k]
		if v == p || v == q {
			if seen++; seen == 2 {
				return true
			}
			continue
		}
		if i := &f.ins[v]; i.void || !f.pure(i) {
			return false
		}
	}
	return false
}

func (e *emitter) mulLoads(i *ins, d int32) step {
	pi, qi := &e.f.ins[i.aux], &e.f.ins[i.imm]
	p, q, c := e.access(pi), e.access(qi), e.reg(i.args[len(i.args)-1])
	pr, qr := e.beside(0), e.beside(1)

	// The loads keep the program's order, so that the first one traps first.
	first, second := e.load(pi, pr), e.load(qi, qr)
	if i.imm < uint64(i.aux) {
		first, second = second, first
	}

	return func(w *Worker) bool {
		pm, qm := w.mem[p.slot], w.mem[q.slot]
		if (w.aligned[p.slot]|w.aligned[q.slot])&3 == 0 {
			pa, ok := p.rowsAt(w, pm)
			qa, also := q.rowsAt(w, qm)
			if ok && also && vec.MulAddAffine(w.r[d], pm, pa, qm, qa, w.r[c]) {
				return true
			}
		}
		if !first(w) || !second(w) {
			return false
		}
		vec.MulAdd(w.r[d], w.r[pr], w.r[qr], w.r[c])
		return true
	}
}
