package lane

import "capgpu/program/spirv"

// An affine value is base + x·cx + y·cy + z·cz for the lane at x, y, z of its
// workgroup, with base and factors uniform, modulo 2³². An access with affine
// indices needs no index per lane: four scalars determine its address, and a row of
// the workgroup is often a run of consecutive words.

type form struct {
	ok   bool
	base val
	c    [3]val // 0 is the factor 0
}

type affine struct {
	f       *fn
	forms   map[val]form
	denied  map[val]bool
	blk     int32
	out     []val // list of the block that is being made
	phis    []val // new phis of it
	guesses []guess
}

// guess is a phi at the head of a loop that was assumed to be affine with its
// initial factors.
type guess struct {
	phi, base val
	back      int
}

// findAffine rewrites the indices of loads and stores.
func (f *fn) findAffine() {
	a := &affine{f: f, denied: make(map[val]bool)}
	for round := 0; ; round++ {
		if a.pass(round > 3) {
			break
		}
	}
	for n := range f.blocks {
		for _, v := range f.blocks[n].ins {
			if i := &f.ins[v]; i.op == iLoad || i.op == iStore {
				a.rewrite(i, int32(n))
			}
		}
	}
}

// pass finds the forms of all values, and reports whether all guesses were right.
func (a *affine) pass(noPhis bool) bool {
	f := a.f
	a.forms, a.guesses = make(map[val]form), nil
	for n := range f.blocks {
		b := &f.blocks[n]
		a.blk, a.out, a.phis = int32(n), make([]val, 0, len(b.ins)), nil
		for k, v := range b.ins {
			if k >= b.phis {
				a.out = append(a.out, v)
			}
			if i := &f.ins[v]; i.vary && !i.wide && !i.void {
				if i.op == iPhi && (noPhis || a.denied[v]) {
					continue
				}
				if x := a.find(v); x.ok {
					a.forms[v] = x
				}
			}
		}

		b = &f.blocks[n]
		list := append(append(make([]val, 0, b.phis+len(a.phis)+len(a.out)), b.ins[:b.phis]...), a.phis...)
		b.phis = len(list)
		b.ins = append(list, a.out...)
	}

	held := true
	for _, g := range a.guesses {
		i := &f.ins[g.phi]
		x := a.at(i.args[g.back], f.blocks[i.blk].preds[g.back])
		if x.ok && x.c == a.forms[g.phi].c {
			f.ins[g.base].args[g.back] = x.base
		} else {
			f.ins[g.base].args[g.back] = f.word(0)
			a.denied[g.phi] = true
			held = false
		}
	}

	return held
}

// at is the form of v in block b.
func (a *affine) at(v val, b int32) form {
	f := a.f
	if !f.variesAt(v, b) {
		return form{ok: true, base: v}
	}

	x, ok := a.forms[v]
	if i := &f.ins[v]; i.op == iInput {
		x, ok = a.input(i.imm), true
	}
	if !ok || !x.ok {
		return form{}
	}
	if x.base == 0 {
		x.base = f.word(0)
	}

	for _, p := range []val{x.base, x.c[0], x.c[1], x.c[2]} {
		if p != 0 && f.variesAt(p, b) {
			return form{}
		}
	}

	return x
}

func (a *affine) input(n uint64) form {
	f := a.f
	x := form{base: f.word(0)}
	switch n {
	case inLaneX, inLaneY, inLaneZ:
		x.c[n-inLaneX] = f.word(1)
	case inLane:
		x.c = [3]val{f.word(1), f.word(f.block.X), f.word(f.block.X * f.block.Y)}
	default:
		return form{}
	}
	x.ok = true
	return x
}

// find is the form of the varying value v.
func (a *affine) find(v val) form {
	f := a.f
	i := f.ins[v]
	arg := func(k int) form { return a.at(i.args[k], a.blk) }
	both := func(o spirv.Opcode) form {
		x, y := arg(0), arg(1)
		if !x.ok || !y.ok {
			return form{}
		}
		z := form{ok: true, base: a.op(o, x.base, y.base)}
		for k := range z.c {
			z.c[k] = a.op(o, x.c[k], y.c[k])
		}
		return z
	}

	times := func(o spirv.Opcode, x form, s val) form {
		if !x.ok || f.variesAt(s, a.blk) {
			return form{}
		}
		z := form{ok: true, base: a.op(o, x.base, s)}
		for k := range z.c {
			z.c[k] = a.op(o, x.c[k], s)
		}
		return z
	}

	switch i.op {
	case op(spirv.OpIAdd), op(spirv.OpISub):
		return both(spirv.Opcode(i.op))
	case op(spirv.OpIMul):
		if f.variesAt(i.args[0], a.blk) {
			return times(spirv.OpIMul, arg(0), i.args[1])
		}
		return times(spirv.OpIMul, arg(1), i.args[0])
	case op(spirv.OpShiftLeftLogical):
		return times(spirv.OpShiftLeftLogical, arg(0), i.args[1])
	case iPhi:
		return a.guess(v)
	}

	return form{}
}

func (a *affine) guess(v val) form {
	f := a.f
	i := f.ins[v]
	preds := f.blocks[i.blk].preds
	if len(preds) != 2 || (preds[0] >= i.blk) == (preds[1] >= i.blk) {
		return form{}
	}

	back := 0
	if preds[1] >= i.blk {
		back = 1
	}

	x := a.at(i.args[1-back], preds[1-back])
	if !x.ok {
		return form{}
	}

	args := make([]val, 2)
	args[1-back] = x.base
	args[back] = x.base
	base := f.add(ins{op: iPhi, blk: i.blk, args: args, src: i.src})
	a.phis = append(a.phis, base)
	a.guesses = append(a.guesses, guess{v, base, back})
	x.base = base
	return x
}

// op is a new uniform instruction, or an existing value if that suffices.
func (a *affine) op(o spirv.Opcode, x, y val) val {
	f := a.f
	zero := func(v val) val {
		if v == 0 {
			return f.word(0)
		}
		return v
	}

	if x == 0 && (y == 0 || o != spirv.OpIAdd && o != spirv.OpISub) {
		return 0
	}

	i := ins{op: op(o), blk: a.blk, args: f.take([]val{zero(x), zero(y)}), src: f.ins[max(x, y)].src}
	if c, ok := f.foldOrSimplify(&i); ok {
		if f.isZero(c) {
			return 0
		}
		return c
	}

	v := f.add(i)
	a.out = append(a.out, v)
	return v
}

// rewrite makes the terms of an access affine if all varying ones are.
func (a *affine) rewrite(i *ins, blk int32) {
	f := a.f
	m := &f.mems[i.aux]
	if m.v.class == classPrivate {
		return
	}

	var forms []form
	some := false
	for _, t := range m.terms {
		x := a.at(i.args[t.at], blk)
		if !x.ok {
			return
		}
		forms = append(forms, x)
		some = some || x.c != [3]val{}
	}

	if !some {
		return
	}

	var args []val
	for k := range m.terms {
		t := &m.terms[k]
		x := forms[k]
		t.at = int32(len(args))
		if x.base == 0 {
			x.base = f.word(0)
		}
		args = append(args, x.base)
		if x.c != [3]val{} {
			t.affine = true
			args = append(args, x.c[:]...)
		}
	}

	operands := i.args[m.args:]
	m.args = int32(len(args))
	i.args = append(args, operands...)
}
