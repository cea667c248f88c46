package lanetest

import "capgpu/program/spirv"

// element is a pointer to an element of the lane in a buffer with slots of them for
// each; main writes number 0 at its end.
func (g *generator) element(buffer int, t, k spirv.ID) spirv.ID {
	u := shape{u32, 1}
	if k == 0 {
		k = g.U32(0)
	}
	at := g.op(spirv.OpIAdd, u, g.op(spirv.OpIMul, u, g.Load(g.Uint(32), g.mem.slot), g.U32(slots)), k)
	return g.Access(spirv.StorageClassStorageBuffer, t, g.mem.buffers[buffer], g.U32(0), at)
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
	lane := g.Load(g.Uint(32), g.mem.inputs[spirv.BuiltInLocalInvocationIndex])
	p, t := g.part(spirv.StorageClassWorkgroup, g.mem.own, g.mem.ownType, []spirv.ID{lane})
	if t.k == boolean || !t.k.float() && g.n(2) == 1 { // unwritten memory is no fixed float
		g.Store(p, g.expr(t, 2, false))
		return
	}
	if t.k.float() {
		g.Store(p, g.expr(t, 2, false))
		return
	}
	g.keep(g.Load(g.typ(t), p), t, false)
}

// element2 uses the lane's elements with a step that is the same for all.
func (g *generator) element2() {
	u := shape{u32, 1}
	at := g.op(spirv.OpIAdd, u, g.op(spirv.OpIMul, u, g.Load(g.Uint(32), g.mem.slot), g.U32(slots)), g.U32(uint32(g.n(slots))))
	p := g.Access(spirv.StorageClassStorageBuffer, g.Float(32), g.mem.buffers[outFloats], g.U32(0), at)
	g.Store(p, g.op(spirv.OpFAdd, shape{f32, 1}, g.Load(g.Float(32), p), g.expr(shape{f32, 1}, 2, false)))
}

// structure uses the lane's element of the buffer of structs. Floats in it are no
// NaNs.
func (g *generator) structure() {
	path := []spirv.ID{g.U32(1), g.Load(g.Uint(32), g.mem.slot)}
	p, t := g.part(spirv.StorageClassStorageBuffer, g.mem.buffers[outStructs], g.mem.structs, path)
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

// wholeStruct loads or stores an element of the buffer of structs at once.
func (g *generator) wholeStruct() {
	t := g.laidOut(g.mem.structs)
	p := g.Access(spirv.StorageClassStorageBuffer, t, g.mem.buffers[outStructs], g.U32(1), g.Load(g.Uint(32), g.mem.slot))
	id := g.Load(t, p)
	var path []any
	at := g.mem.structs
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

	if plain := g.typeOf(g.mem.structs); g.Version >= 0x10400 && plain != t {
		v := g.Local(plain)
		g.Store(v, g.Op(spirv.OpCopyLogical, plain, id))
		g.f.vars = append(g.f.vars, variableOf{v, g.mem.structs, spirv.StorageClassFunction})
	}
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

// strided reads at indexes that are linear in the lane's number, initially and per
// step, as long as they are in range.
func (g *generator) strided() {
	u := shape{u32, 1}
	lane := g.Load(g.Uint(32), g.mem.inputs[spirv.BuiltInLocalInvocationIndex])
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
	limit := g.U32(uint32(64 + g.n(80)*g.launch.lanes))
	turns := g.U32(uint32(2 + g.n(6)))
	var last spirv.ID
	g.Loop(func() spirv.ID {
		last = g.op(spirv.OpIMul, u, g.Load(g.typ(u), at), g.U32(3))
		in := g.op(spirv.OpULessThan, shape{boolean, 1}, g.Load(g.typ(u), at), limit)
		return g.op(spirv.OpLogicalAnd, shape{boolean, 1}, in, g.op(spirv.OpULessThan, shape{boolean, 1}, g.Load(g.typ(u), count), turns))
	}, func(brk, cont spirv.ID) bool {
		v := g.Load(g.typ(u), g.Access(spirv.StorageClassStorageBuffer, g.typ(u), g.mem.buffers[inWords], g.U32(0), g.Load(g.typ(u), at)))
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
