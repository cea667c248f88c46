package lanetest

import "capgpu/program/spirv"

// Statements.

// statement writes one; it is false if it ends the block.
func (g *generator) statement() bool {
	deep := g.f.nesting > 4
	switch g.n(30) {
	case 0, 1:
		g.compute()
	case 2, 3, 26:
		g.set()
	case 4:
		g.output()
	case 5, 6, 7:
		if !deep {
			return g.selection()
		}
	case 8, 9:
		if g.f.nesting < 3 {
			return g.loop()
		}
	case 10:
		if !deep {
			return g.choice()
		}
	case 11:
		g.call()
	case 12:
		g.ownElement()
	case 13:
		g.exchange()
	case 14, 15:
		g.subgroup()
	case 16:
		g.atomic()
	case 17:
		g.whole()
	case 18:
		if g.small {
			g.narrow()
		}
	case 19:
		g.structure()
	case 20:
		return g.rare()
	case 21:
		g.parts()
	case 22:
		g.tell()
	case 23:
		g.dotLoop()
	case 24:
		g.wholeStruct()
	case 25:
		g.element2()
	case 27:
		g.get()
	case 28:
		g.guarded()
	case 29:
		g.strided()
	}
	return true
}

// element2 uses the lane's elements with a step that is the same for all.
func (g *generator) element2() {
	u := shape{u32, 1}
	at := g.op(spirv.OpIAdd, u, g.op(spirv.OpIMul, u, g.Load(g.Uint(32), g.slot), g.U32(slots)), g.U32(uint32(g.n(slots))))
	p := g.Access(spirv.StorageClassStorageBuffer, g.Float(32), g.buffers[outFloats], g.U32(0), at)
	g.Store(p, g.op(spirv.OpFAdd, shape{f32, 1}, g.Load(g.Float(32), p), g.expr(shape{f32, 1}, 2, false)))
}

// keep makes a value available to what follows.
func (g *generator) keep(id spirv.ID, t shape, uniform bool) {
	g.f.scope = append(g.f.scope, val{id, t, uniform})
	if g.n(4) > 0 {
		g.add(id, t)
	}
}

// add adds a value to what the function computed.
func (g *generator) add(id spirv.ID, t shape) {
	u := g.Uint(32)
	sum := g.Load(u, g.f.sum)
	if t.k.float() {
		id = g.clean(t, id)
	}
	for i := range t.n {
		one, x := shape{t.k, 1}, id
		if t.n > 1 {
			x = g.op(spirv.OpCompositeExtract, one, id, i)
		}
		switch t.k {
		case boolean:
			x = g.Op(spirv.OpSelect, u, x, g.U32(5), g.U32(9))
		case i32, f32:
			x = g.Op(spirv.OpBitcast, u, x)
		case u64, i64, f64:
			if t.k != u64 {
				x = g.Op(spirv.OpBitcast, g.Uint(64), x)
			}
			high := g.Op(spirv.OpUConvert, u, g.Op(spirv.OpShiftRightLogical, g.Uint(64), x, g.U32(32)))
			x = g.Op(spirv.OpBitwiseXor, u, g.Op(spirv.OpUConvert, u, x), high)
		}
		sum = g.Op(spirv.OpIAdd, u, g.Op(spirv.OpIMul, u, sum, g.U32(31)), x)
	}
	g.Store(g.f.sum, sum)
}

func (g *generator) compute() {
	t := g.shape(true)
	uniform := g.n(4) == 3
	id := g.expr(t, 1+g.n(4), uniform)
	g.keep(id, t, uniform)
}

// set stores to a part of a variable.
func (g *generator) set() {
	if len(g.f.vars) == 0 {
		return
	}
	v := g.f.vars[g.n(len(g.f.vars))]
	p, t := g.part(v.class, v.id, v.t, nil)
	if t.k == f32 && g.n(8) == 7 {
		frac := g.Ext(spirv.GLSLModf, g.typ(t), g.expr(t, 2, false), p)
		g.keep(frac, t, false)
		return
	}
	if t.k == i32 && g.n(8) == 7 {
		f := shape{f32, t.n}
		g.keep(g.Ext(spirv.GLSLFrexp, g.typ(f), g.expr(f, 2, false), p), f, false)
		return
	}
	g.Store(p, g.expr(t, 2, false))
}

// get loads a part of a variable.
func (g *generator) get() {
	if len(g.f.vars) == 0 {
		return
	}
	v := g.f.vars[g.n(len(g.f.vars))]
	p, t := g.part(v.class, v.id, v.t, nil)
	g.keep(g.Load(g.typ(t), p), t, false)
}

// guarded does what would trap on some lanes, on the others.
func (g *generator) guarded() {
	k := []kind{u32, i32}[g.n(2)]
	if g.long && g.n(3) == 2 {
		k = []kind{u64, i64}[g.n(2)]
	}
	t, u := shape{k, 1}, shape{u32, 1}
	r := g.Local(g.typ(t))
	x := g.expr(t, 2, false)
	few := g.op(spirv.OpBitwiseAnd, t, x, g.number(k, 3))
	if g.n(2) == 1 { // a division
		g.If(g.op(spirv.OpINotEqual, shape{boolean, 1}, few, g.number(k, 0)), func() bool {
			o := divisions[g.n(2)]
			if k == u32 || k == u64 {
				o = divisions[3+g.n(2)]
			}
			g.Store(r, g.op(o, t, g.expr(t, 1, false), few))
			return true
		}, nil)
		g.fresh()
		g.keep(g.Load(g.typ(t), r), t, false)
		return
	}
	v := g.Local(g.Array(g.typ(t), g.U32(3), 0))
	at := g.expr(u, 2, false)
	g.If(g.op(spirv.OpULessThan, shape{boolean, 1}, at, g.U32(3)), func() bool {
		g.Store(g.Access(spirv.StorageClassFunction, g.typ(t), v, at), x)
		return true
	}, func() bool {
		g.Store(g.Access(spirv.StorageClassFunction, g.typ(t), v, g.U32(uint32(g.n(3)))), few)
		return true
	})
	g.fresh()
	g.keep(g.Load(g.typ(t), g.Access(spirv.StorageClassFunction, g.typ(t), v, g.U32(uint32(g.n(3))))), t, false)
}

// strided reads at indexes that begin and go on by something linear in the lane's
// number, as long as they are in range.
func (g *generator) strided() {
	u := shape{u32, 1}
	lane := g.Load(g.Uint(32), g.inputs[spirv.BuiltInLocalInvocationIndex])
	linear := func() spirv.ID {
		switch g.n(4) {
		case 0:
			return g.U32(uint32(1 + g.n(70)))
		case 1:
			return g.op(spirv.OpIAdd, u, lane, g.U32(1))
		case 2:
			return g.op(spirv.OpIAdd, u, g.op(spirv.OpIMul, u, lane, g.number(u32, g.n(6))), g.U32(1))
		}
		return g.op(spirv.OpIAdd, u, g.op(spirv.OpBitwiseAnd, u, g.expr(u, 1, true), g.U32(63)), g.U32(5))
	}
	at, sum, count := g.Local(g.typ(u)), g.Local(g.typ(u)), g.Local(g.typ(u))
	g.Store(at, linear())
	g.Store(sum, g.U32(0))
	g.Store(count, g.U32(0))
	step := linear()
	limit := g.U32(uint32(64 + g.n(80)*g.lanes))
	turns := g.U32(uint32(2 + g.n(6)))
	var last spirv.ID
	g.Loop(func() spirv.ID {
		last = g.op(spirv.OpIMul, u, g.Load(g.typ(u), at), g.U32(3))
		in := g.op(spirv.OpULessThan, shape{boolean, 1}, g.Load(g.typ(u), at), limit)
		return g.op(spirv.OpLogicalAnd, shape{boolean, 1}, in, g.op(spirv.OpULessThan, shape{boolean, 1}, g.Load(g.typ(u), count), turns))
	}, func(brk, cont spirv.ID) bool {
		v := g.Load(g.typ(u), g.Access(spirv.StorageClassStorageBuffer, g.typ(u), g.buffers[inWords], g.U32(0), g.Load(g.typ(u), at)))
		g.Store(sum, g.op(spirv.OpIAdd, u, g.op(spirv.OpIMul, u, g.Load(g.typ(u), sum), g.U32(7)), v))
		return true
	}, func() {
		g.Store(at, g.op(spirv.OpIAdd, u, g.Load(g.typ(u), at), step))
		g.Store(count, g.op(spirv.OpIAdd, u, g.Load(g.typ(u), count), g.U32(1)))
	})
	g.fresh()
	g.keep(g.Load(g.typ(u), sum), u, false)
	g.keep(last, u, false)
}

// element is a pointer to an element of the lane in a buffer with slots of them for
// each; 0 is the one that main writes at its end.
func (g *generator) element(buffer int, t, k spirv.ID) spirv.ID {
	u := shape{u32, 1}
	if k == 0 {
		k = g.U32(0)
	}
	at := g.op(spirv.OpIAdd, u, g.op(spirv.OpIMul, u, g.Load(g.Uint(32), g.slot), g.U32(slots)), k)
	return g.Access(spirv.StorageClassStorageBuffer, t, g.buffers[buffer], g.U32(0), at)
}

// output stores to the lane's elements of a buffer, or loads from there.
func (g *generator) output() {
	outs := []struct {
		buffer int
		k      kind
	}{{outWords, u32}, {outFloats, f32}, {outLongs, u64}, {outDoubles, f64}}
	n := 2
	if g.long {
		n = 4
	}
	o := outs[g.n(n)]
	t := shape{o.k, 1}
	p := g.element(o.buffer, g.typ(t), g.word(slots))
	if g.n(3) == 2 {
		g.keep(g.Load(g.typ(t), p), t, false)
		return
	}
	g.Store(p, g.expr(t, 3, false))
}

// ownElement uses the lane's element of shared memory.
func (g *generator) ownElement() {
	lane := g.Load(g.Uint(32), g.inputs[spirv.BuiltInLocalInvocationIndex])
	p, t := g.part(spirv.StorageClassWorkgroup, g.own, g.ownType, []spirv.ID{lane})
	if t.k == boolean || !t.k.float() && g.n(2) == 1 { // what was not written is no fixed float
		g.Store(p, g.expr(t, 2, false))
		return
	}
	if t.k.float() {
		g.Store(p, g.expr(t, 2, false))
		return
	}
	g.keep(g.Load(g.typ(t), p), t, false)
}

// exchange hands values from lane to lane in shared memory, between barriers.
func (g *generator) exchange() {
	b := g.f
	if b.apart && (!g.wild || g.n(3) > 0) {
		return
	}
	if !b.main {
		b.barriers = true
	}
	u := shape{u32, 1}
	lane := g.Load(g.Uint(32), g.inputs[spirv.BuiltInLocalInvocationIndex])
	at := func(i spirv.ID) spirv.ID {
		return g.Access(spirv.StorageClassWorkgroup, g.Uint(32), g.swap, i)
	}
	g.Barrier()
	g.Store(at(lane), g.expr(u, 2, false))
	g.Barrier()
	from := g.op(spirv.OpUMod, u, g.expr(u, 2, false), g.U32(uint32(g.lanes)))
	if g.n(3) == 2 { // a lane that follows
		from = g.op(spirv.OpUMod, u, g.op(spirv.OpIAdd, u, lane, g.U32(uint32(g.n(70)))), g.U32(uint32(g.lanes)))
	}
	g.keep(g.Load(g.Uint(32), at(from)), u, false)
}

// call calls a function.
func (g *generator) call() {
	if len(g.functions) == 0 {
		return
	}
	h := g.functions[g.n(len(g.functions))]
	if h.barriers && g.f.apart {
		return
	}
	if h.barriers && !g.f.main {
		g.f.barriers = true
	}
	var args []spirv.ID
	for _, p := range h.params {
		args = append(args, g.expr(p, 2, false))
	}
	for _, p := range h.pointers {
		v := spirv.ID(0)
		for _, have := range g.f.vars {
			if have.class == spirv.StorageClassFunction && have.t.parts == nil && have.t.t == p {
				v = have.id
			}
		}
		if v == 0 {
			v = g.Local(g.typ(p))
			g.f.vars = append(g.f.vars, variableOf{v, &tree{t: p}, spirv.StorageClassFunction})
		}
		args = append(args, v)
	}
	r := g.Call(g.typ(h.result), h.id, args...)
	if h.result.n > 0 {
		g.keep(r, h.result, false)
	}
}

// whole copies all of a variable of several parts to another like it, or through a
// value that is changed.
func (g *generator) whole() {
	if len(g.f.vars) == 0 {
		return
	}
	v := g.f.vars[g.n(len(g.f.vars))]
	if v.t.parts == nil {
		return
	}
	id := g.Load(g.typeOf(v.t), v.id)
	other := v
	for _, o := range g.f.vars {
		if o.t == v.t && o.id != v.id {
			other = o
		}
	}
	if other.id == v.id && v.class == spirv.StorageClassFunction {
		other.id = g.Local(g.typeOf(v.t))
		g.f.vars = append(g.f.vars, other)
	}
	t := v.t
	var path []any
	for t.parts != nil {
		i := 0
		if t.n > 0 {
			i = g.n(t.n)
			path, t = append(path, i), t.parts[0]
			continue
		}
		i = g.n(len(t.parts))
		path, t = append(path, i), t.parts[i]
	}
	if g.n(2) == 1 {
		g.keep(g.op(spirv.OpCompositeExtract, t.t, id, path), t.t, false)
	}
	if g.n(2) == 1 {
		id = g.Op(spirv.OpCompositeInsert, g.typeOf(v.t), g.expr(t.t, 1, false), id, path)
	}
	g.Store(other.id, id)
}

// structure uses the lane's element of the buffer of structs. Floats in it are no
// NaNs.
func (g *generator) structure() {
	path := []spirv.ID{g.U32(1), g.Load(g.Uint(32), g.slot)}
	p, t := g.part(spirv.StorageClassStorageBuffer, g.buffers[outStructs], g.structs, path)
	if g.n(3) == 2 {
		g.keep(g.Load(g.typ(t), p), t, false)
		return
	}
	v := g.expr(t, 2, false)
	if t.k.float() {
		v = g.clean(t, v)
	}
	g.Store(p, v)
}

// parts keeps the parts of a vector.
func (g *generator) parts() {
	t := g.shape(true)
	if t.n == 1 {
		return
	}
	v := g.expr(t, 2, false)
	for i := range t.n {
		one := shape{t.k, 1}
		g.keep(g.op(spirv.OpCompositeExtract, one, v, i), one, false)
	}
}

// narrow uses the buffers of 8 and 16 bits.
func (g *generator) narrow() {
	word, wide := shape{u32, 1}, shape{u32, 4}
	bytes, halves, short := g.Vec(g.Uint(8), 4), g.Vec(g.Float(16), 2), g.Int(16)
	k := g.word(slots)
	switch g.n(8) {
	case 0:
		v := g.Load(bytes, g.element(outBytes, bytes, k))
		g.keep(g.op(spirv.OpUConvert, wide, v), wide, false)
	case 1:
		v := g.Load(bytes, g.element(outBytes, bytes, k))
		g.keep(g.op(spirv.OpBitcast, word, v), word, false)
	case 2:
		v := g.Op(spirv.OpUConvert, bytes, g.expr(wide, 2, false))
		g.Store(g.element(outBytes, bytes, k), v)
	case 3:
		s := shape{i32, 1}
		v := g.Load(short, g.element(outShorts, short, k))
		g.keep(g.op(spirv.OpSConvert, s, v), s, false)
	case 4:
		v := g.Op(spirv.OpSConvert, short, g.expr(shape{i32, 1}, 2, false))
		if g.n(2) == 1 {
			var8 := g.Local(short)
			g.Store(var8, v)
			v = g.Op(spirv.OpSelect, short, g.expr(shape{boolean, 1}, 1, false), v, g.Load(short, var8))
		}
		g.Store(g.element(outShorts, short, k), v)
	case 5:
		t := shape{f32, 2}
		if g.long && g.n(2) == 1 {
			t.k = f64
		}
		v := g.Load(halves, g.element(outHalves, halves, k))
		g.keep(g.op(spirv.OpFConvert, t, v), t, false)
	case 6:
		t := shape{f32, 2}
		if g.long && g.n(2) == 1 {
			t.k = f64
		}
		v := g.Op(spirv.OpFConvert, halves, g.expr(t, 2, false))
		g.Store(g.element(outHalves, halves, k), v)
	case 7:
		t := shape{i32, 1}
		if g.long {
			t.k = i64
		}
		v := g.Op(spirv.OpCompositeExtract, g.Uint(8), g.Load(bytes, g.element(outBytes, bytes, k)), g.n(4))
		v = g.Op(spirv.OpBitcast, g.Int(8), v)
		g.keep(g.op(spirv.OpSConvert, t, v), t, false)
	}
}

var arithmetics = []spirv.Opcode{spirv.OpGroupNonUniformIAdd, spirv.OpGroupNonUniformIMul, spirv.OpGroupNonUniformSMin, spirv.OpGroupNonUniformSMax,
	spirv.OpGroupNonUniformBitwiseAnd, spirv.OpGroupNonUniformBitwiseOr, spirv.OpGroupNonUniformBitwiseXor, spirv.OpGroupNonUniformUMin, spirv.OpGroupNonUniformUMax}

// subgroup does something with the other lanes of the subgroup.
func (g *generator) subgroup() {
	scope := g.U32(uint32(spirv.ScopeSubgroup))
	t := g.shape(true)
	truth, word, ballot := shape{boolean, 1}, shape{u32, 1}, shape{u32, 4}
	group := g.n(3)
	switch g.n(8) {
	case 0, 1:
		var o spirv.Opcode
		switch {
		case t.k == boolean:
			o = spirv.OpGroupNonUniformLogicalAnd + spirv.Opcode(g.n(3))
		case t.k.float():
			o = []spirv.Opcode{spirv.OpGroupNonUniformFAdd, spirv.OpGroupNonUniformFMul, spirv.OpGroupNonUniformFMin, spirv.OpGroupNonUniformFMax}[g.n(4)]
		case t.k == u32 || t.k == u64:
			o = arithmetics[g.n(len(arithmetics))]
		default:
			o = arithmetics[g.n(7)]
		}
		g.keep(g.op(o, t, scope, group, g.expr(t, 2, false)), t, false)
	case 2:
		o := []spirv.Opcode{spirv.OpGroupNonUniformAll, spirv.OpGroupNonUniformAny}[g.n(2)]
		g.keep(g.op(o, truth, scope, g.expr(truth, 2, false)), truth, false)
	case 3:
		if t.k.float() {
			t.k = u32
		}
		g.keep(g.op(spirv.OpGroupNonUniformAllEqual, truth, scope, g.expr(t, 2, false)), truth, false)
	case 4:
		g.keep(g.op(spirv.OpGroupNonUniformElect, truth, scope), truth, false)
	case 5:
		at := g.U32(uint32(g.n(9)))
		if g.Version >= 0x10500 && g.n(2) == 1 {
			at = g.expr(word, 1, true)
		}
		if g.n(2) == 1 {
			g.keep(g.op(spirv.OpGroupNonUniformBroadcastFirst, t, scope, g.expr(t, 2, false)), t, false)
			return
		}
		g.keep(g.op(spirv.OpGroupNonUniformBroadcast, t, scope, g.expr(t, 2, false), at), t, false)
	case 6:
		o := []spirv.Opcode{spirv.OpGroupNonUniformShuffle, spirv.OpGroupNonUniformShuffleXor, spirv.OpGroupNonUniformShuffleUp, spirv.OpGroupNonUniformShuffleDown}[g.n(4)]
		at := g.op(spirv.OpBitwiseAnd, word, g.expr(word, 1, false), g.U32(15))
		if g.n(4) == 3 {
			at = g.expr(word, 1, false)
		}
		g.keep(g.op(o, t, scope, g.expr(t, 2, false), at), t, false)
	case 7:
		v := g.op(spirv.OpGroupNonUniformBallot, ballot, scope, g.expr(truth, 2, false))
		if g.n(3) == 2 {
			v = g.expr(ballot, 1, false)
		}
		one := g.Composite(g.typ(ballot), g.U32(1), g.U32(0), g.U32(0), g.U32(0))
		some := g.op(spirv.OpBitwiseOr, ballot, v, one)
		switch g.n(5) {
		case 0:
			g.keep(v, ballot, false)
		case 1:
			g.keep(g.op(spirv.OpGroupNonUniformInverseBallot, truth, scope, v), truth, false)
		case 2:
			at := g.op(spirv.OpBitwiseAnd, word, g.expr(word, 1, false), g.U32(63))
			g.keep(g.op(spirv.OpGroupNonUniformBallotBitExtract, truth, scope, v, at), truth, false)
		case 3:
			g.keep(g.op(spirv.OpGroupNonUniformBallotBitCount, word, scope, group, v), word, false)
		case 4:
			o := []spirv.Opcode{spirv.OpGroupNonUniformBallotFindLSB, spirv.OpGroupNonUniformBallotFindMSB}[g.n(2)]
			g.keep(g.op(o, word, scope, some), word, false)
		}
	}
}

var atomicOps = []spirv.Opcode{spirv.OpAtomicIAdd, spirv.OpAtomicISub, spirv.OpAtomicUMin, spirv.OpAtomicUMax, spirv.OpAtomicSMin, spirv.OpAtomicSMax,
	spirv.OpAtomicAnd, spirv.OpAtomicOr, spirv.OpAtomicXor, spirv.OpAtomicExchange, spirv.OpAtomicIIncrement, spirv.OpAtomicIDecrement,
	spirv.OpAtomicLoad, spirv.OpAtomicStore, spirv.OpAtomicCompareExchange}

// atomic works on cells that no other statement uses.
func (g *generator) atomic() {
	if g.region++; g.region >= regions {
		return
	}
	u := shape{u32, 1}
	cell := g.word(cells)
	relaxed := g.U32(0)
	scope := g.U32(uint32(spirv.ScopeDevice))
	p := g.Access(spirv.StorageClassStorageBuffer, g.Uint(32), g.buffers[atomicWords], g.U32(0),
		g.op(spirv.OpIAdd, u, cell, g.U32(uint32(g.region*cells))))
	switch which := g.n(9); {
	case which < 6 || g.used[which-6]:
	case which == 6:
		g.used[0] = true
		p = g.Access(spirv.StorageClassWorkgroup, g.Uint(32), g.atoms, cell)
	case which == 7:
		g.used[1] = true
		g.atomicFloat(cell)
		return
	case g.long:
		g.used[2] = true
		g.atomicLong(cell)
		return
	}
	o := atomicOps[g.n(len(atomicOps))]
	switch o {
	case spirv.OpAtomicStore:
		g.Do(o, p, scope, relaxed, g.expr(u, 2, false))
		return
	case spirv.OpAtomicLoad, spirv.OpAtomicIIncrement, spirv.OpAtomicIDecrement:
		g.keep(g.op(o, u, p, scope, relaxed), u, false)
	case spirv.OpAtomicCompareExchange:
		g.keep(g.op(o, u, p, scope, relaxed, relaxed, g.expr(u, 2, false), g.expr(u, 1, false)), u, false)
	default:
		g.keep(g.op(o, u, p, scope, relaxed, g.expr(u, 2, false)), u, false)
	}
}

// atomicFloat and atomicLong work on shared memory that no other statement uses.
func (g *generator) atomicFloat(cell spirv.ID) {
	f, relaxed, scope := shape{f32, 1}, g.U32(0), g.U32(uint32(spirv.ScopeDevice))
	p := g.Access(spirv.StorageClassWorkgroup, g.Float(32), g.floats, cell)
	o := []spirv.Opcode{spirv.OpAtomicFAddEXT, spirv.OpAtomicExchange}[g.n(2)]
	g.keep(g.op(o, f, p, scope, relaxed, g.expr(f, 2, false)), f, false)
}

func (g *generator) atomicLong(cell spirv.ID) {
	l, relaxed, scope := shape{i64, 1}, g.U32(0), g.U32(uint32(spirv.ScopeDevice))
	p := g.Access(spirv.StorageClassWorkgroup, g.Int(64), g.longs, cell)
	switch o := atomicOps[g.n(len(atomicOps))]; o {
	case spirv.OpAtomicStore:
		g.Do(o, p, scope, relaxed, g.expr(l, 2, false))
	case spirv.OpAtomicLoad, spirv.OpAtomicIIncrement, spirv.OpAtomicIDecrement:
		g.keep(g.op(o, l, p, scope, relaxed), l, false)
	case spirv.OpAtomicCompareExchange:
		g.keep(g.op(o, l, p, scope, relaxed, relaxed, g.expr(l, 2, false), g.expr(l, 1, false)), l, false)
	default:
		g.keep(g.op(o, l, p, scope, relaxed, g.expr(l, 2, false)), l, false)
	}
}

// tell has one lane tell the others a value, between barriers.
func (g *generator) tell() {
	b := g.f
	if b.apart {
		return
	}
	b.barriers = b.barriers || !b.main
	u := shape{u32, 1}
	g.Barrier()
	lane := g.Load(g.Uint(32), g.inputs[spirv.BuiltInLocalInvocationIndex])
	which := g.op(spirv.OpUMod, u, g.expr(u, 1, true), g.U32(uint32(g.lanes)))
	g.If(g.op(spirv.OpIEqual, shape{boolean, 1}, lane, which), func() bool {
		g.Store(g.one, g.expr(u, 2, false))
		return true
	}, nil)
	g.fresh()
	g.Barrier()
	g.keep(g.Load(g.Uint(32), g.one), u, true)
}

// fresh begins a block whose label is known, after what the Builder made.
func (g *generator) fresh() {
	label := g.ID()
	g.Branch(label)
	g.open(label)
}

// dotLoop sums up products of what is read in step with a loop's counter.
func (g *generator) dotLoop() {
	u, f := shape{u32, 1}, shape{f32, 1}
	sum, at := g.Local(g.typ(f)), g.Local(g.typ(u))
	g.Store(sum, g.expr(f, 1, false))
	g.Store(at, g.U32(uint32(g.n(3))))
	n := g.op(spirv.OpBitwiseAnd, u, g.expr(u, 1, true), g.U32(7))
	lane := g.Load(g.Uint(32), g.inputs[spirv.BuiltInLocalInvocationIndex])
	row := g.op(spirv.OpIMul, u, lane, g.U32(uint32(1+g.n(9))))
	step := uint32(1 + g.n(3))
	element := func(i spirv.ID) spirv.ID {
		return g.Load(g.typ(f), g.Access(spirv.StorageClassStorageBuffer, g.typ(f), g.buffers[inFloats], g.U32(0), i))
	}
	by := g.n(5)
	local := func(i uint32) spirv.ID {
		return g.Load(g.Uint(32), g.Access(spirv.StorageClassInput, g.Uint(32), g.inputs[spirv.BuiltInLocalInvocationId], g.U32(i)))
	}
	g.Loop(func() spirv.ID {
		return g.op(spirv.OpULessThan, shape{boolean, 1}, g.Load(g.typ(u), at), n)
	}, func(brk, cont spirv.ID) bool {
		k := g.Load(g.typ(u), at)
		a := element(g.op(spirv.OpIAdd, u, row, k))
		b := a
		switch by {
		case 0:
			b = element(k)
		case 1:
			b = element(g.op(spirv.OpIAdd, u, g.op(spirv.OpIMul, u, k, g.U32(5)), lane))
		case 2:
			b = element(g.op(spirv.OpIAdd, u, row, g.op(spirv.OpIMul, u, k, g.U32(2))))
		case 3: // of a product of matrices
			a = element(g.op(spirv.OpIAdd, u, g.op(spirv.OpIMul, u, local(1), g.U32(7)), k))
			b = element(g.op(spirv.OpIAdd, u, g.op(spirv.OpIMul, u, k, g.U32(9)), local(0)))
		}
		g.Store(sum, g.op(spirv.OpFAdd, f, g.Load(g.typ(f), sum), g.op(spirv.OpFMul, f, a, b)))
		return true
	}, func() {
		g.Store(at, g.op(spirv.OpIAdd, u, g.Load(g.typ(u), at), g.U32(step)))
	})
	g.fresh()
	g.keep(g.Load(g.typ(f), sum), f, false)
}

// wholeStruct loads or stores an element of the buffer of structs at once.
func (g *generator) wholeStruct() {
	t := g.laidOut(g.structs)
	p := g.Access(spirv.StorageClassStorageBuffer, t, g.buffers[outStructs], g.U32(1), g.Load(g.Uint(32), g.slot))
	id := g.Load(t, p)
	var path []any
	at := g.structs
	for at.parts != nil {
		i := 0
		if at.n > 0 {
			i = g.n(at.n)
			path, at = append(path, i), at.parts[0]
			continue
		}
		i = g.n(len(at.parts))
		path, at = append(path, i), at.parts[i]
	}
	g.keep(g.op(spirv.OpCompositeExtract, at.t, id, path), at.t, false)
	if g.n(2) == 1 {
		v := g.expr(at.t, 2, false)
		if at.t.k.float() {
			v = g.clean(at.t, v)
		}
		g.Store(p, g.Op(spirv.OpCompositeInsert, t, v, id, path))
	}
	if plain := g.typeOf(g.structs); g.Version >= 0x10400 && plain != t {
		v := g.Local(plain)
		g.Store(v, g.Op(spirv.OpCopyLogical, plain, id))
		g.f.vars = append(g.f.vars, variableOf{v, g.structs, spirv.StorageClassFunction})
	}
}

// rare is what programs seldom have.
func (g *generator) rare() bool {
	switch g.n(6) {
	case 0:
		semantics := spirv.MemorySemanticsAcquireRelease | spirv.MemorySemanticsWorkgroupMemory
		g.Do(spirv.OpMemoryBarrier, g.U32(uint32(spirv.ScopeWorkgroup)), g.U32(uint32(semantics)))
	case 1:
		g.Do(spirv.OpNop)
	case 2:
		s := g.U32(uint32(spirv.ScopeSubgroup))
		g.Do(spirv.OpControlBarrier, s, s, g.U32(0))
	case 3: // what is not reached
		x := g.expr(shape{u32, 1}, 1, false)
		never := g.op(spirv.OpINotEqual, shape{boolean, 1}, x, x)
		if g.wild && g.n(4) == 3 {
			never = g.expr(shape{boolean, 1}, 2, false)
		}
		yes, merge := g.ID(), g.ID()
		g.SelectionMerge(merge)
		g.BranchIf(never, yes, merge)
		g.open(yes)
		g.Do(spirv.OpUnreachable)
		g.open(merge)
	case 4: // an array that is filled in a loop's way, and indexed
		t := &tree{n: 2 + g.n(6), parts: []*tree{{t: g.shape(true)}}}
		v := g.Local(g.typeOf(t))
		for i := range t.n {
			p := g.Access(spirv.StorageClassFunction, g.typ(t.parts[0].t), v, g.U32(uint32(i)))
			g.Store(p, g.expr(t.parts[0].t, 1, false))
		}
		g.f.vars = append(g.f.vars, variableOf{v, t, spirv.StorageClassFunction})
	case 5:
		id := g.Load(g.Uint(32), g.Access(spirv.StorageClassPushConstant, g.Uint(32), g.push, g.U32(2), g.index(4)))
		g.keep(id, shape{u32, 1}, false)
	}
	return true
}
