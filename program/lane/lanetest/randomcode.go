package lanetest

import "capgpu/program/spirv"

// statement writes one statement; it returns false if the statement ends the block.
// Statements that use memory are in randommemory.go, those in which lanes cooperate
// in randomlanes.go, and control flow in randomflow.go.
func (g *generator) statement() bool {
	deep := g.f.nesting > 4
	switch g.n(31) {
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
		g.broadcast()

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
	case 30:
		g.pointers()
	}

	return true
}

// keep makes a value available to later statements.
func (g *generator) keep(id spirv.ID, t shape, uniform bool) {
	g.f.scope = append(g.f.scope, val{id, t, uniform})
	if g.n(4) > 0 {
		g.add(id, t)
	}
}

// add adds a value to the function's result.
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
		case u8, u16:
			x = g.Op(spirv.OpUConvert, u, x)
		case i8, i16:
			x = g.Op(spirv.OpSConvert, u, x)
		case f16:
			x = g.Op(spirv.OpUConvert, u, g.Op(spirv.OpBitcast, g.Uint(16), x))
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

// guarded does an operation that would trap on some lanes, only on the others.
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

// call calls a function.
func (g *generator) call() {
	if len(g.made.functions) == 0 {
		return
	}

	h := g.made.functions[g.n(len(g.made.functions))]
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

// fresh begins a block with a known label, after the Builder's output.
func (g *generator) fresh() {
	label := g.ID()
	g.Branch(label)
	g.open(label)
}

// dotLoop sums up products of values that are read in step with a loop's counter.
func (g *generator) dotLoop() {
	u, f := shape{u32, 1}, shape{f32, 1}
	sum, at := g.Local(g.typ(f)), g.Local(g.typ(u))
	g.Store(sum, g.expr(f, 1, false))
	g.Store(at, g.U32(uint32(g.n(3))))
	n := g.op(spirv.OpBitwiseAnd, u, g.expr(u, 1, true), g.U32(7))
	lane := g.Load(g.Uint(32), g.mem.inputs[spirv.BuiltInLocalInvocationIndex])
	row := g.op(spirv.OpIMul, u, lane, g.U32(uint32(1+g.n(9))))
	step := uint32(1 + g.n(3))
	element := func(i spirv.ID) spirv.ID {
		return g.Load(g.typ(f), g.Access(spirv.StorageClassStorageBuffer, g.typ(f), g.mem.buffers[inFloats], g.U32(0), i))
	}

	by := g.n(5)
	local := func(i uint32) spirv.ID {
		return g.Load(g.Uint(32), g.Access(spirv.StorageClassInput, g.Uint(32), g.mem.inputs[spirv.BuiltInLocalInvocationId], g.U32(i)))
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

// rare writes constructs that programs seldom have.
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

	case 3: // unreachable code
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

	case 4: // an array that a loop fills, and indexing
		t := &tree{n: 2 + g.n(6), parts: []*tree{{t: g.shape(true)}}}
		v := g.Local(g.typeOf(t))
		for i := range t.n {
			p := g.Access(spirv.StorageClassFunction, g.typ(t.parts[0].t), v, g.U32(uint32(i)))
			g.Store(p, g.expr(t.parts[0].t, 1, false))
		}
		g.f.vars = append(g.f.vars, variableOf{v, t, spirv.StorageClassFunction})

	case 5:
		id := g.Load(g.Uint(32), g.Access(spirv.StorageClassPushConstant, g.Uint(32), g.mem.push, g.U32(2), g.index(4)))
		g.keep(id, shape{u32, 1}, false)
	}
	return true
}
