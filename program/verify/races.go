package verify

import (
	"capgpu/program/spirv"
)

// maxSteps bounds the comparisons of addresses in a module, and also the blocks
// that are searched for the ends of loops. Beyond it, all addresses count as
// different.
const maxSteps = 1 << 20

// sharedRaces warns of reads of shared memory after writes without a barrier
// between. It follows at most 64 places in each function, a place being one form of
// address. A lane's read of its own write is no finding, if the address is its own.
func (v *verifier) sharedRaces(divergent []bool) {
	sums := make([]raceSummary, len(v.functions))
	v.steps = maxSteps
	for _, i := range v.reached.order {
		if fn := &v.functions[i]; fn.reached {
			r := races{v: v, fn: fn, sums: sums, divergent: divergent}
			r.run(&sums[i])
		}
	}
}

// raceSummary is a function's effect on shared memory, by variable (one bit each;
// the last is for all beyond 63).
type raceSummary struct {
	exposed uint64 // read before any barrier
	dirty   uint64 // written, and no barrier after
	barrier bool   // there is a barrier on every path through
}

type races struct {
	v         *verifier
	fn        *function
	sums      []raceSummary
	divergent []bool // by id: a pointer to a different place for each lane
	places    []place
	out       []uint64 // by block: places written without a later barrier
	clean     []bool   // by block: no barrier on some way from the entry to its end
	writes    []uint8  // by write, in the order of a pass: the number of its place
	next      int
}

// place is the target of a write: a pointer, or anywhere in a variable.
type place struct {
	pointer  spirv.ID // 0: anywhere
	variable uint
}

// variable is the number of the shared variable that a pointer leads into.
func (r *races) variable(pointer spirv.ID) (uint, bool) {
	i := r.v.info(pointer)
	if i.typ.class != spirv.StorageClassWorkgroup {
		return 0, false
	}
	root := r.v.info(i.root)
	return uint(min(root.num, 63)), root.what == isVariable && root.num >= 0
}

// write is the place of a write. All passes visit writes in the same order.
func (r *races) write(pointer spirv.ID, variable uint) uint64 {
	if r.next == len(r.writes) {
		r.writes = append(r.writes, r.place(pointer, variable))
	}
	r.next++
	return 1 << r.writes[r.next-1]
}

func (r *races) place(pointer spirv.ID, variable uint) uint8 {
	for i, p := range r.places {
		if p.variable == variable && (p.pointer == pointer || i == 63 || r.same(p.pointer, pointer, 4)) {
			return uint8(i)
		}
	}
	if len(r.places) == 64 {
		r.places[63] = place{0, variable}
		return 63
	}
	r.places = append(r.places, place{pointer, variable})
	return uint8(len(r.places) - 1)
}

func (r *races) run(sum *raceSummary) {
	c := r.fn.cfg
	if !r.touches() {
		return
	}

	r.out, r.clean = make([]uint64, len(c.Blocks)), make([]bool, len(c.Blocks))
	for pass, changed := 0, true; changed && pass < 64; pass++ {
		changed, r.next = false, 0
		for _, b := range c.RPO {
			out, clean := r.block(b, sum, false)
			if out != r.out[b] || clean != r.clean[b] {
				r.out[b], r.clean[b], changed = out, clean, true
			}
		}
	}

	sum.barrier, r.next = true, 0
	for _, b := range c.RPO {
		r.block(b, sum, true)
		if len(c.Succs[b]) != 0 || c.Blocks[b].Term.Op == spirv.OpUnreachable {
			continue
		}
		sum.barrier = sum.barrier && !r.clean[b]
		for i, p := range r.places {
			sum.dirty |= r.out[b] >> i & 1 << p.variable
		}
	}
}

// touches reports whether the function, or one that it calls, uses shared memory.
func (r *races) touches() bool {
	for _, id := range r.fn.globals {
		if r.v.info(id).typ.class == spirv.StorageClassWorkgroup {
			return true
		}
	}
	for _, call := range r.fn.calls {
		if s := r.sums[call.callee]; s.barrier || s.exposed != 0 || s.dirty != 0 {
			return true
		}
	}
	return r.fn.barriers
}

// block is the state after a block: the places written without a later barrier, and
// whether there was no barrier yet.
func (r *races) block(b int, sum *raceSummary, report bool) (dirty uint64, clean bool) {
	v, c := r.v, r.fn.cfg
	clean = b == 0
	for _, p := range c.Preds[b] {
		dirty |= r.out[p]
		clean = clean || r.clean[p]
	}

	insts := c.Blocks[b].Insts
	for j := range insts {
		in := &insts[j]
		switch op := in.Op; {
		case op == spirv.OpControlBarrier:
			if scope, _ := v.literal(in.Arg(0)); spirv.Scope(scope) == spirv.ScopeWorkgroup {
				dirty, clean = 0, false
			}

		case op == spirv.OpCopyMemory:
			if n, ok := r.variable(in.Arg(1)); ok {
				if clean {
					sum.exposed |= 1 << n
				}
				if report && r.written(dirty, n, in.Arg(1)) {
					v.warn(WarnShared, in, "%s is read after a write that may be another lane's, and no barrier is between", v.m.Name(v.info(in.Arg(1)).root))
				}
			}
			if n, ok := r.variable(in.Arg(0)); ok {
				dirty |= r.write(in.Arg(0), n)
			}

		case op == spirv.OpStore || op > spirv.OpAtomicLoad && op <= spirv.OpAtomicXor || op == spirv.OpAtomicFAddEXT:
			if n, ok := r.variable(in.Arg(0)); ok {
				dirty |= r.write(in.Arg(0), n)
			}

		case op == spirv.OpLoad:
			n, ok := r.variable(in.Arg(0))
			if !ok {
				continue
			}
			if clean {
				sum.exposed |= 1 << n
			}
			if report && r.written(dirty, n, in.Arg(0)) {
				v.warn(WarnShared, in, "%s is read after a write that may be another lane's, and no barrier is between", v.m.Name(v.info(in.Arg(0)).root))
			}

		case op == spirv.OpFunctionCall:
			s := &r.sums[v.info(in.Arg(0)).num]
			for n := uint(0); n < 64 && s.exposed|s.dirty != 0; n++ {
				if report && s.exposed>>n&1 != 0 && r.written(dirty, n, 0) {
					v.warn(WarnShared, in, "the callee reads shared memory after a write, and no barrier is between")
					break
				}
			}
			if clean {
				sum.exposed |= s.exposed
			}
			if s.barrier {
				dirty, clean = 0, false
			}
			for n := uint(0); n < 64 && s.dirty>>n != 0; n++ {
				if s.dirty>>n&1 != 0 {
					dirty |= r.write(0, n)
				}
			}
		}
	}

	return dirty, clean
}

// written reports whether the variable may have been written elsewhere than at the
// pointer.
func (r *races) written(dirty uint64, variable uint, pointer spirv.ID) bool {
	for i, p := range r.places {
		if dirty>>i&1 != 0 && p.variable == variable && !(p.pointer != 0 && r.divergent[p.pointer] && r.same(p.pointer, pointer, 4)) {
			return true
		}
	}
	return false
}

// same reports whether two values are known to be the same for one lane: the same
// computation of the same operands, to a small depth.
func (r *races) same(a, b spirv.ID, depth int) bool {
	v := r.v
	if v.steps--; v.steps < 0 {
		return false
	}
	if a == b {
		return a != 0
	}
	if a == 0 || b == 0 || depth == 0 {
		return false
	}
	if x, y := v.constant(a), v.constant(b); x != nil && y != nil {
		return x.form == scalarForm && y.form == scalarForm && x.bits == y.bits
	}

	x, y := v.m.Def(a), v.m.Def(b)
	if x == nil || y == nil || x.Op != y.Op || len(x.Args) != len(y.Args) {
		return false
	}

	switch op := x.Op; {
	case op == spirv.OpLoad:
		p, q := v.info(x.Arg(0)), v.info(y.Arg(0))
		fixed := p.typ.class == spirv.StorageClassInput || p.typ.class == spirv.StorageClassPushConstant ||
			p.typ.class == spirv.StorageClassFunction && v.info(p.root).num == onceStored
		return fixed && p.root == q.root && r.same(x.Arg(0), y.Arg(0), depth-1)

	case op == spirv.OpAccessChain || op == spirv.OpInBoundsAccessChain:
	case op == spirv.OpCompositeExtract:
		for i := 1; i < len(x.Args); i++ {
			if x.Args[i] != y.Args[i] {
				return false
			}
		}
		return r.same(x.Arg(0), y.Arg(0), depth-1)

	case op >= spirv.OpSNegate && op <= spirv.OpFMod || op >= spirv.OpShiftRightLogical && op <= spirv.OpNot || op == spirv.OpBitcast:
	default:
		return false
	}

	for i := range x.Args {
		if !r.same(x.Arg(i), y.Arg(i), depth-1) {
			return false
		}
	}

	return true
}
