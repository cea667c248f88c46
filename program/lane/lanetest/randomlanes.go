package lanetest

import "capgpu/program/spirv"

// exchange passes values from lane to lane in shared memory, between barriers.
func (g *generator) exchange() {
	b := g.f
	if b.apart && (!g.wild || g.n(3) > 0) {
		return
	}
	if !b.main {
		b.barriers = true
	}

	u := shape{u32, 1}
	lane := g.Load(g.Uint(32), g.mem.inputs[spirv.BuiltInLocalInvocationIndex])
	at := func(i spirv.ID) spirv.ID {
		return g.Access(spirv.StorageClassWorkgroup, g.Uint(32), g.mem.swap, i)
	}

	g.Barrier()
	g.Store(at(lane), g.expr(u, 2, false))
	g.Barrier()
	from := g.op(spirv.OpUMod, u, g.expr(u, 2, false), g.U32(uint32(g.launch.lanes)))
	if g.n(3) == 2 { // a lane that follows
		from = g.op(spirv.OpUMod, u, g.op(spirv.OpIAdd, u, lane, g.U32(uint32(g.n(70)))), g.U32(uint32(g.launch.lanes)))
	}

	g.keep(g.Load(g.Uint(32), at(from)), u, false)
}

// broadcast makes one lane pass a value to the others, between barriers.
func (g *generator) broadcast() {
	b := g.f
	if b.apart {
		return
	}

	b.barriers = b.barriers || !b.main
	u := shape{u32, 1}
	g.Barrier()
	lane := g.Load(g.Uint(32), g.mem.inputs[spirv.BuiltInLocalInvocationIndex])
	which := g.op(spirv.OpUMod, u, g.expr(u, 1, true), g.U32(uint32(g.launch.lanes)))
	g.If(g.op(spirv.OpIEqual, shape{boolean, 1}, lane, which), func() bool {
		g.Store(g.mem.one, g.expr(u, 2, false))
		return true
	}, nil)

	g.fresh()
	g.Barrier()
	g.keep(g.Load(g.Uint(32), g.mem.one), u, true)
}

var arithmetics = []spirv.Opcode{spirv.OpGroupNonUniformIAdd, spirv.OpGroupNonUniformIMul, spirv.OpGroupNonUniformSMin, spirv.OpGroupNonUniformSMax,
	spirv.OpGroupNonUniformBitwiseAnd, spirv.OpGroupNonUniformBitwiseOr, spirv.OpGroupNonUniformBitwiseXor, spirv.OpGroupNonUniformUMin, spirv.OpGroupNonUniformUMax}

// subgroup does an operation with the other lanes of the subgroup.
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
		case t.k.unsigned():
			o = arithmetics[g.n(len(arithmetics))]
		default:
			o = arithmetics[g.n(7)]
		}
		if g.n(4) == 3 {
			size := g.U32(1 << g.n(7))
			g.keep(g.op(o, t, scope, uint32(spirv.GroupOperationClusteredReduce), g.expr(t, 2, false), size), t, false)
			return
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
		if n := g.n(8); n < 2 {
			o := []spirv.Opcode{spirv.OpGroupNonUniformQuadBroadcast, spirv.OpGroupNonUniformQuadSwap}[n]
			g.keep(g.op(o, t, scope, g.expr(t, 2, false), g.U32(uint32(g.n(4-n)))), t, false)
			return
		}
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
	if g.mem.region++; g.mem.region >= regions {
		return
	}

	u := shape{u32, 1}
	cell := g.word(cells)
	relaxed := g.U32(0)
	scope := g.U32(uint32(spirv.ScopeDevice))
	p := g.Access(spirv.StorageClassStorageBuffer, g.Uint(32), g.mem.buffers[atomicWords], g.U32(0),
		g.op(spirv.OpIAdd, u, cell, g.U32(uint32(g.mem.region*cells))))

	switch which := g.n(9); {
	case which < 6 || g.mem.used[which-6]:
	case which == 6:
		g.mem.used[0] = true
		p = g.Access(spirv.StorageClassWorkgroup, g.Uint(32), g.mem.atoms, cell)
	case which == 7:
		g.mem.used[1] = true
		g.atomicFloat(cell)
		return
	case g.long:
		g.mem.used[2] = true
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
	p := g.Access(spirv.StorageClassWorkgroup, g.Float(32), g.mem.floats, cell)
	o := []spirv.Opcode{spirv.OpAtomicFAddEXT, spirv.OpAtomicExchange}[g.n(2)]
	g.keep(g.op(o, f, p, scope, relaxed, g.expr(f, 2, false)), f, false)
}

func (g *generator) atomicLong(cell spirv.ID) {
	l, relaxed, scope := shape{i64, 1}, g.U32(0), g.U32(uint32(spirv.ScopeDevice))
	p := g.Access(spirv.StorageClassWorkgroup, g.Int(64), g.mem.longs, cell)
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
