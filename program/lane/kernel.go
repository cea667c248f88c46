package lane

import (
	"errors"
	"fmt"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane/vec"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// Kernel is a program compiled for one workgroup and subgroup size. It does not
// change and may have any number of workers.
type Kernel struct {
	block  program.Dim3
	lanes  int
	subs   int
	check  bool
	module *spirv.Module
	launch []step // run once, before the first workgroup
	blocks []xblock
	count  [banks]int32
	consts []fixedWord
	inputs [inCount]int32 // register; -1: not used
	shared int            // bytes
	priv   [2]int         // slots
	masks  int
	inline int  // bytes of the push constant block that are used
	piece  int  // bytes that the checker tells apart
	fences bool // there are fences of storage buffers
}

type fixedWord struct {
	reg  int32
	wide bool
	bits uint64
}

// Memories that an access can be to: bindings by their number, and
const (
	slotShared = program.MaxBindings + iota
	slotInline
	slotCount
)

// noBinding is Trap.Binding where the memory is none.
const noBinding = outcome.NoBinding

// xblock is a block ready to run.
type xblock struct {
	code  []step
	term  termKind
	cond  int32
	wide  bool // cond is 64 bits
	vary  bool // cond is a vector
	edges []xedge
	cases []uint64
	to    []int32 // edge of each case, [0] of the default
	inst  *spirv.Inst
}

// xedge is a way to another block, with what the phis there get.
type xedge struct {
	to     int32
	back   bool
	copies []step
}

// Compile prepares an admitted program for launches with the given options. The
// error is a *program.Refusal.
func Compile(p *verify.Program, o Options) (k *Kernel, err error) {
	if err := o.check(p); err != nil {
		return nil, err
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			k, err = nil, e.err
		case error:
			k, err = nil, program.Refuse("SPV-2903", "", 0, "the lane engine cannot compile this module: %v", e)
		default:
			panic(e)
		}
	}()
	f := front(p, o)
	k = f.emit(f.allocate(), o)
	k.module = p.Module
	k.inline = int(p.Info.InlineBytes)
	if n := k.MemoryBytes(); n > maxWorkerBytes {
		return nil, program.Refuse("E-GPU-4012", "", 0, "a workgroup of %d lanes needs %d bytes for registers and local variables, more than %d", k.lanes, n, maxWorkerBytes)
	}
	return k, nil
}

// front is everything before registers: the program in internal form.
func front(p *verify.Program, o Options) *fn {
	l := newLowerer(p, o)
	f := l.run()
	f.limit *= 8 // what follows adds copies and address arithmetic
	f.arrange(l.order)
	f.clean()
	f.drop()
	f.uniformity()
	f.keepValues()
	if !o.Check {
		f.findAffine()
	}
	f.fuse()
	f.splats()
	f.share()
	f.hoist()
	f.foldTerms()
	f.drop()
	f.perLaunch()
	if !o.Check {
		f.fuseLoads()
	}
	return f
}

var errInternal = errors.New("an instruction without a meaning")

// emitter makes steps of a function whose values have registers.
type emitter struct {
	f *fn
	a *alloc
	k *Kernel
}

func (f *fn) emit(a *alloc, o Options) *Kernel {
	k := &Kernel{
		block: o.Block, lanes: f.lanes, subs: f.subs, check: o.Check,
		shared: int(f.shared), priv: [2]int{int(max(f.privTop[0], f.privs[0])), int(max(f.privTop[1], f.privs[1]))},
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
	return k
}

// block makes the steps of block n, and of those after it that only it leads to.
// It returns the number of the first block that it has not made.
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
			// Long blocks look at the stop flag now and then.
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

// cost is about how many nanoseconds an instruction takes for a lane, but that most
// take less than one.
func (f *fn) cost(v val) int {
	i := &f.ins[v]
	switch {
	case !i.vary && !i.void:
		return 0
	case i.op >= glslBase && i.op < iNone, i.op == iAtomic, i.op == iSubgroup:
		return 32
	case i.op == iLoad, i.op == iStore, i.wide, i.op == op(spirv.OpFRem), i.op == op(spirv.OpFMod):
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
			if w.pending == 0 {
				return whole(w)
			}
			if !part(w) {
				return false
			}
			vec.BlendL(w.q[d], w.q[t], w.mask)
			return true
		}
	}
	return func(w *Worker) bool {
		if w.pending == 0 {
			return whole(w)
		}
		if !part(w) {
			return false
		}
		vec.Blend(w.r[d], w.r[t], w.mask)
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
	case iBarrier:
		return e.barrier(i)
	case iFence:
		e.k.fences = e.k.fences || i.imm == 1
		return func(*Worker) bool { return true }
	case iCheckZero:
		return e.checkZero(i)
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
		panic(errInternal)
	}
	return s
}

// copyStep copies to register d on active lanes.
func copyStep(d, s int32, wide, fromScalar bool) step {
	switch {
	case wide && fromScalar:
		return func(w *Worker) bool {
			if w.pending == 0 {
				vec.SplatL(w.q[d], w.sq[s])
			} else {
				blendSL(w.q[d], w.sq[s], w.mask)
			}
			return true
		}
	case wide:
		return func(w *Worker) bool {
			if w.pending == 0 {
				copy(w.q[d], w.q[s])
			} else {
				vec.BlendL(w.q[d], w.q[s], w.mask)
			}
			return true
		}
	case fromScalar:
		return func(w *Worker) bool {
			if w.pending == 0 {
				vec.Splat(w.r[d], w.s[s])
			} else {
				vec.BlendS(w.r[d], w.s[s], w.mask)
			}
			return true
		}
	}
	return func(w *Worker) bool {
		if w.pending == 0 {
			copy(w.r[d], w.r[s])
		} else {
			vec.Blend(w.r[d], w.r[s], w.mask)
		}
		return true
	}
}

// move is one copy of an edge.
type move struct {
	d, s       int32
	wide       bool
	vary, from bool // destination, source is a vector
}

func (m move) step() step {
	if m.vary {
		return copyStep(m.d, m.s, m.wide, !m.from)
	}
	d, s := m.d, m.s
	if m.wide {
		return func(w *Worker) bool { w.sq[d] = w.sq[s]; return true }
	}
	return func(w *Worker) bool { w.s[d] = w.s[s]; return true }
}

// copies are what the phis of block to get from block from. They happen at once:
// a register that is read is read before it is written, and a circle is opened by
// keeping one register of it aside.
func (e *emitter) copies(from, to int32) []step {
	f := e.f
	b := &f.blocks[to]
	at := -1
	for k, p := range b.preds {
		if p == from {
			at = k
		}
	}
	var todo []move
	for _, p := range b.ins[:b.phis] {
		ph := &f.ins[p]
		s := ph.args[at]
		if e.a.reg[p] < 0 {
			continue
		}
		m := move{d: e.reg(p), s: e.reg(s), wide: ph.wide, vary: ph.vary, from: f.varying(s)}
		if m.d == m.s && m.vary == m.from {
			continue
		}
		todo = append(todo, m)
	}
	return e.sequence(todo)
}

// sequence is the order in which moves that happen at once are made one by one.
func (e *emitter) sequence(todo []move) []step {
	type place struct {
		reg  int32
		wide bool
	}
	readers := make(map[place][]int, len(todo)) // moves that are still to read a register
	writer := make(map[place]int, len(todo))
	left := make(map[place]int, len(todo))
	for k, m := range todo {
		readers[place{m.s, m.wide}] = append(readers[place{m.s, m.wide}], k)
		left[place{m.s, m.wide}]++
		writer[place{m.d, m.wide}] = k
	}
	out := make([]step, 0, len(todo))
	done := make([]bool, len(todo))
	var ready []int // moves whose destination nobody reads any more
	for k, m := range todo {
		if left[place{m.d, m.wide}] == 0 {
			ready = append(ready, k)
		}
	}
	free := func() {
		for len(ready) > 0 {
			k := ready[len(ready)-1]
			ready = ready[:len(ready)-1]
			m := todo[k]
			out = append(out, m.step())
			done[k] = true
			from := place{m.s, m.wide}
			if left[from]--; left[from] == 0 {
				if next, ok := writer[from]; ok && !done[next] {
					ready = append(ready, next)
				}
			}
		}
	}
	free()
	for k := range todo {
		if done[k] {
			continue
		}
		// Only circles are left. The register that this move writes is set aside for
		// those that read it.
		m := todo[k]
		at := place{m.d, m.wide}
		aside := move{d: e.spare(m), s: m.d, wide: m.wide, vary: m.vary, from: m.vary}
		out = append(out, aside.step())
		for _, r := range readers[at] {
			if !done[r] {
				todo[r].s = aside.d
			}
		}
		left[at] = 0
		ready = append(ready, k)
		free()
	}
	return out
}

// beside is one of two vector registers for what is used at once.
func (e *emitter) beside(n int32) int32 { return e.temp(false) + 1 + n }

// spare is a register beside all others, of the kind that a move needs.
func (e *emitter) spare(m move) int32 {
	switch {
	case m.vary:
		return e.temp(m.wide)
	case m.wide:
		return e.temp(true) + 1
	}
	return e.temp(false) + 3
}
