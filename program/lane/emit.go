package lane

import (
	"errors"
	"fmt"

	"capgpu/program/lane/vec"
	"capgpu/program/spirv"
)

// emitter makes steps of a function after register allocation.
type emitter struct {
	f *fn
	a *alloc
	k *Kernel
}

func (f *fn) emit(a *alloc, o Options) *Kernel {
	k := &Kernel{
		block: o.Block, lanes: f.lanes, subs: f.subs, check: o.Check,
		shared: int(f.shared), zeros: f.zeros, priv: [2]int{int(max(f.privTop[0], f.privs[0])), int(max(f.privTop[1], f.privs[1]))},
		count: a.count, blocks: make([]xblock, len(f.blocks)),
		masks: min(len(f.blocks), f.lanes) + 3,
	}

	for n := range k.inputs {
		k.inputs[n] = -1
	}

	e := &emitter{f, a, k}
	k.piece = 4
	for _, m := range f.mems {
		if m.v.class != classPrivate && m.size < 4 {
			k.piece = 1
		}
	}

	for _, s := range f.spots {
		if s.size < 4 {
			k.piece = 1
		}
	}

	for v := range f.ins {
		i := &f.ins[v]
		if !f.fixed(val(v)) || a.reg[v] < 0 {
			continue
		}
		switch {
		case i.op == iInput:
			k.inputs[i.imm] = e.reg(val(v))
			continue
		case i.once:
			continue
		}
		k.consts = append(k.consts, fixedWord{e.reg(val(v)), i.wide, i.imm})
	}

	for _, v := range f.launch {
		k.launch = append(k.launch, e.step(v))
	}

	for n := 0; n < len(f.blocks); {
		n = e.block(n)
	}

	// A lane on its way to nothing but a return has returned: it does not wait for
	// others there, and no barrier waits for it.
	for n := len(f.blocks) - 1; n >= 0; n-- {
		b := &f.blocks[n]
		next := b.term == termJump && int(b.succs[0]) > n && k.blocks[b.succs[0]].gone
		k.blocks[n].gone = !b.busy && (b.term == termReturn || next)
	}

	k.measure(f)
	return k
}

// block makes the steps of block n, and of later blocks that only it leads to. It
// returns the number of the first block that it has not made.
func (e *emitter) block(n int) int {
	f := e.f
	x := &e.k.blocks[n]
	work := 0
	for {
		b := &f.blocks[n]
		for _, v := range b.ins[b.phis:] {
			if f.ins[v].dead {
				continue
			}
			x.code = append(x.code, e.step(v))
			// Long blocks check the stop flag now and then.
			if work += f.lanes * f.cost(v); work > 1<<16 {
				work = 0
				x.code = append(x.code, checkStop)
			}
		}

		n++
		if b.term != termJump || int(b.succs[0]) != n || len(f.blocks[n].preds) != 1 {
			e.end(x, b, int32(n-1))
			return n
		}

		x.code = append(x.code, e.copies(int32(n-1), int32(n))...)
	}
}

// cost approximates the nanoseconds of an instruction for a lane; most take less
// than one.
func (f *fn) cost(v val) int {
	i := &f.ins[v]
	switch {
	case !i.vary && !i.void:
		return 0
	case i.op == iMulLoads, i.op == iAtomic, i.op == iLoadAt, i.op == iStoreAt, i.op == iAtomicAt:
		return 64
	case i.op >= glslBase && i.op < iNone, i.op == iSubgroup, i.op == iLoad, i.op == iStore:
		return 32 // memory may have to be faulted in as it is touched, a page for each lane
	case i.wide, i.op == op(spirv.OpFRem), i.op == op(spirv.OpFMod):
		return 8
	}
	return 1
}

// end makes the end of a block.
func (e *emitter) end(x *xblock, b *block, n int32) {
	x.term, x.inst = b.term, b.src
	if len(b.succs) > 1 {
		c := &e.f.ins[b.cond]
		x.cond, x.wide, x.vary = e.reg(b.cond), c.wide, e.f.varying(b.cond)
		x.cases, x.to = b.cases, b.to
	} else if b.term == termBranch || b.term == termSwitch {
		x.term = termJump
	}
	for _, s := range b.succs {
		x.edges = append(x.edges, xedge{to: s, back: s <= n, copies: e.copies(n, s)})
	}
}

// reg is the register of a value in the worker's r or q: scalars come first.
func (e *emitter) reg(v val) int32 {
	i := &e.f.ins[v]
	r := e.a.reg[v]
	if r < 0 {
		panic(fmt.Errorf("value %d (op %d) has no register", v, i.op))
	}
	switch i.bank() {
	case bankV:
		r += e.a.count[bankS]
	case bankVL:
		r += e.a.count[bankSL]
	}
	return r
}

// temp is a vector register for results that must be masked.
func (e *emitter) temp(wide bool) int32 {
	if wide {
		return e.a.count[bankSL] + e.a.count[bankVL]
	}
	return e.a.count[bankS] + e.a.count[bankV]
}

// step is the step of one instruction.
func (e *emitter) step(v val) step {
	i := &e.f.ins[v]
	if i.void {
		return e.plain(i, -1)
	}

	d := e.reg(v)
	whole := e.plain(i, d)
	if !i.mask || !i.vary {
		return whole
	}
	if i.op == iKeep {
		return whole
	}

	t := e.temp(i.wide)
	part := e.plain(i, t)
	if i.wide {
		return func(w *Worker) bool {
			if w.lanes.pending == 0 {
				return whole(w)
			}
			if !part(w) {
				return false
			}
			vec.BlendL(w.q[d], w.q[t], w.lanes.mask)
			return true
		}
	}

	return func(w *Worker) bool {
		if w.lanes.pending == 0 {
			return whole(w)
		}
		if !part(w) {
			return false
		}
		vec.Blend(w.r[d], w.r[t], w.lanes.mask)
		return true
	}
}

// plain is the step of an instruction that writes register d on all lanes.
func (e *emitter) plain(i *ins, d int32) step {
	f := e.f
	switch i.op {
	case iLoad:
		return e.load(i, d)

	case iStore:
		return e.store(i)
	case iMulLoads:
		return e.mulLoads(i, d)

	case iAtomic:
		return e.atomic(i, d)
	case iLoadAt:
		return e.loadAt(i, d)
	case iStoreAt:
		return e.storeAt(i)
	case iAtomicAt:
		return e.atomicAt(i, d)
	case iBarrier:
		return e.barrier(i)

	case iFence:
		e.k.fences = e.k.fences || i.imm == fenceBuffers
		if i.imm == fenceSubgroup && e.k.check {
			return func(w *Worker) bool { w.checker.sub++; return true }
		}
		return func(*Worker) bool { return true }

	case iCheckZero:
		return e.checkZero(i)
	case iCheckIndex:
		return e.checkIndex(i)
	case iClearVar:
		return e.clearVar(i)

	case iPush:
		return e.push(i, d)
	case iArrLen:
		return e.arrayLength(i, d)

	case iKeep:
		return copyStep(d, e.reg(i.args[0]), i.wide, true)
	case iSplat:
		s := e.reg(i.args[0])
		if i.wide {
			return func(w *Worker) bool { vec.SplatL(w.q[d], w.sq[s]); return true }
		}
		return func(w *Worker) bool { vec.Splat(w.r[d], w.s[s]); return true }

	case iSubgroup:
		return e.subgroup(i, d)
	}

	g := gen{f: f, dst: d, reg: func(k int) int32 { return e.reg(i.args[k]) }}
	if i.vary {
		g.scalar = func(k int) bool { return !f.varying(i.args[k]) }
	}

	s := g.pure(i)
	if s == nil {
		src := i.src
		if src != nil {
			fail(src, "SPV-2901", "the lane engine has no such operation on these types")
		}
		panic(errors.New("an instruction without a meaning"))
	}

	return s
}
