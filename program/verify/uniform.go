package verify

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// uniformity finds the values that are the same for all lanes of a workgroup that
// have them, and the places where all lanes of a workgroup are together. In doubt
// it assumes divergence; the results are used only for warnings.
//
// It begins with everything uniform and visits the functions, callers first, until
// nothing changes. A function has one summary for all its calls.
type uniformity struct {
	v       *verifier
	value   []bool // by id: the value is divergent; of a pointer: its target
	holds   []bool // by id: the variable, or a parameter's target, holds divergent values
	fns     []flowState
	changed bool

	seen   []int32 // by block: the last search that visited it
	search int32
	todo   []int
}

// flowState is the state of a reached function.
type flowState struct {
	constructs []bool // control is divergent inside
	blocks     []bool
	late       []bool // of blocks: some lanes may have returned before
	called     bool   // in divergent control flow
	result     bool   // divergent
}

// maxPasses bounds the work: if it does not suffice, everything counts as
// divergent. Each pass takes a divergence at least one call or one loop further.
const maxPasses = 32

func (v *verifier) flow() *program.Refusal {
	if v.iface.block.n == [3]uint32{1, 1, 1} && v.iface.block.ids == [3]spirv.ID{} {
		return nil // a single lane is never divergent
	}

	u := &uniformity{v: v, value: make([]bool, len(v.ids)), holds: make([]bool, len(v.ids)), fns: make([]flowState, len(v.functions))}
	for i := range v.functions {
		if fn := &v.functions[i]; fn.reached {
			n := len(fn.cfg.Blocks)
			f := &u.fns[i]
			f.constructs, f.blocks, f.late = make([]bool, len(fn.s.constructs)), make([]bool, n), make([]bool, n)
		}
	}

	for pass := 0; ; pass++ {
		u.changed = false
		for i := len(v.reached.order) - 1; i >= 0; i-- {
			if n := v.reached.order[i]; v.functions[n].reached {
				u.function(&v.functions[n], &u.fns[n])
			}
		}
		if !u.changed {
			break
		}
		if pass == maxPasses {
			u.giveUp()
			break
		}
	}

	v.steps = maxSteps
	for i := range v.functions {
		if fn := &v.functions[i]; fn.reached {
			u.report(fn, &u.fns[i])
		}
	}

	v.sharedRaces(u.value)
	return nil
}

func (u *uniformity) giveUp() {
	for i := range u.value {
		u.value[i] = u.v.ids[i].what != isConstant && u.v.ids[i].what != isUndef
	}
	for i := range u.fns {
		for b := range u.fns[i].blocks {
			u.fns[i].blocks[b] = true
		}
	}
}

// set marks a fact as divergent.
func (u *uniformity) set(fact *bool) {
	if !*fact {
		*fact, u.changed = true, true
	}
}

// inside reports whether control is divergent in construct x or one around it.
func (f *flowState) inside(s *structure, x int32) bool {
	for ; x >= 0; x = s.constructs[x].parent {
		if f.constructs[x] {
			return true
		}
	}
	return false
}

func (u *uniformity) function(fn *function, f *flowState) {
	s := fn.s
	for _, b := range fn.cfg.RPO {
		at := s.in[b]
		if own := s.own[b]; own >= 0 && s.constructs[own].kind == loop {
			at = own
		}
		if f.called || f.late[b] || f.inside(s, at) {
			u.set(&f.blocks[b])
		}
		block := fn.cfg.Blocks[b]
		for j := range block.Insts {
			u.instruction(fn, f, b, &block.Insts[j])
		}
		u.terminator(fn, f, b, &block.Term)
	}
}

func (u *uniformity) instruction(fn *function, f *flowState, b int, in *spirv.Inst) {
	v := u.v
	divergent := false
	switch op := in.Op; {
	case op == spirv.OpVariable || op == spirv.OpNop || op == spirv.OpLine || op == spirv.OpNoLine || op == spirv.OpControlBarrier || op == spirv.OpMemoryBarrier:
		return

	case op == spirv.OpPhi:
		divergent = u.phi(fn, f, b, in)
	case op == spirv.OpLoad:
		divergent = u.load(in.Arg(0))

	case op == spirv.OpCopyMemory:
		if f.blocks[b] || u.value[in.Arg(0)] || u.load(in.Arg(1)) {
			u.set(&u.holds[v.info(in.Arg(0)).root])
		}
		return

	case op == spirv.OpStore:
		if f.blocks[b] || u.value[in.Arg(0)] || u.value[in.Arg(1)] {
			u.set(&u.holds[v.info(in.Arg(0)).root])
		}
		return

	case op == spirv.OpArrayLength:
	case op == spirv.OpFunctionCall:
		divergent = u.call(f, b, in)

	case op >= spirv.OpAtomicLoad && op <= spirv.OpAtomicXor || op == spirv.OpAtomicFAddEXT:
		divergent = true
	case op >= spirv.OpGroupNonUniformElect && op <= spirv.OpGroupNonUniformQuadSwap:
		divergent = true // the same in a subgroup at best

	case op == spirv.OpExtInst:
		if in.Arg(0) != v.glsl {
			return
		}
		for i := 2; i < len(in.Args); i++ {
			divergent = divergent || u.value[in.Arg(i)]
		}
		if g := spirv.GLSL(in.Arg(1)); (g == spirv.GLSLModf || g == spirv.GLSLFrexp) && (divergent || f.blocks[b]) {
			u.set(&u.holds[v.info(in.Arg(3)).root])
		}

	default:
		n := len(in.Args)
		switch op {
		case spirv.OpCompositeExtract:
			n = 1
		case spirv.OpCompositeInsert, spirv.OpVectorShuffle:
			n = 2
		}
		for i := range n {
			divergent = divergent || u.value[in.Arg(i)]
		}
	}

	if divergent && in.Result != 0 {
		u.set(&u.value[in.Result])
	}
}

// uniformInputs are the built-ins that are the same in a whole workgroup.
var uniformInputs = map[spirv.BuiltIn]bool{
	spirv.BuiltInNumWorkgroups: true, spirv.BuiltInWorkgroupId: true, spirv.BuiltInSubgroupSize: true, spirv.BuiltInNumSubgroups: true,
}

func (u *uniformity) load(p spirv.ID) bool {
	i := u.v.info(p)
	if u.value[p] {
		return true
	}
	switch i.typ.class {
	case spirv.StorageClassPushConstant:
		return false
	case spirv.StorageClassInput:
		return !uniformInputs[spirv.BuiltIn(u.v.info(i.root).num)]
	case spirv.StorageClassStorageBuffer, spirv.StorageClassUniform:
		b, n := u.v.bufferOf(p)
		return n != 1 || u.v.iface.buffers[b].use&program.Write != 0
	case spirv.StorageClassFunction, spirv.StorageClassPrivate:
		return u.holds[i.root]
	}
	return true
}

func (u *uniformity) phi(fn *function, f *flowState, b int, in *spirv.Inst) bool {
	differ := false
	for k := 0; k < len(in.Args); k += 2 {
		if u.value[in.Arg(k)] {
			return true
		}
		differ = differ || in.Args[k] != in.Args[0]
	}
	if !differ {
		return false
	}
	return slices.ContainsFunc(fn.cfg.Preds[b], func(p int) bool { return f.blocks[p] || u.condition(&fn.cfg.Blocks[p].Term) })
}

// condition reports whether lanes may go different ways.
func (u *uniformity) condition(in *spirv.Inst) bool {
	return (in.Op == spirv.OpBranchConditional || in.Op == spirv.OpSwitch) && u.value[in.Arg(0)]
}

func (u *uniformity) call(f *flowState, b int, in *spirv.Inst) bool {
	n := u.v.info(in.Arg(0)).num
	callee, state := &u.v.functions[n], &u.fns[n]
	if f.blocks[b] {
		u.set(&state.called)
	}

	for i := range callee.f.Params {
		p, a := callee.f.Params[i].Result, in.Arg(i+1)
		if u.value[a] {
			u.set(&u.value[p])
		}
		if callee.typ.members[i].kind != kPointer {
			continue
		}
		if root := u.v.info(a).root; u.holds[root] {
			u.set(&u.holds[p])
		} else if u.holds[p] {
			u.set(&u.holds[root])
		}
	}

	return state.result
}

// terminator spreads divergence to the constructs that some lanes leave, or in
// which they are not together.
func (u *uniformity) terminator(fn *function, f *flowState, b int, in *spirv.Inst) {
	s := fn.s
	apart := u.condition(in)
	if own := s.own[b]; apart && own >= 0 && s.constructs[own].kind != loop {
		u.set(&f.constructs[own])
	}

	from := s.inside(b)
	if len(fn.cfg.Succs[b]) == 0 {
		if in.Op == spirv.OpReturnValue && (f.blocks[b] || u.value[in.Arg(0)]) {
			u.set(&f.result)
		}
		if f.blocks[b] && in.Op != spirv.OpUnreachable {
			u.returns(fn, f, from)
		}
		return
	}

	if !apart && !f.blocks[b] {
		return
	}

	for _, t := range fn.cfg.Succs[b] {
		end := s.in[t]
		if x := &s.constructs[end]; x.kind == continued && int(x.cont) == t && !s.within(from, end) {
			end = x.parent
			u.set(&f.constructs[end]) // the rest of the body has fewer lanes
		}
		if x := &s.constructs[from]; x.kind == selection && t == int(x.merge) || from == end {
			continue
		}
		if x := &s.constructs[from]; x.kind == continued && t == int(x.header) {
			continue
		}
		for x := from; x >= 0 && x != end; x = s.constructs[x].parent {
			u.set(&f.constructs[x])
		}
	}
}

// returns spreads the divergence of a return that not all lanes take: everything
// that may run after the branch that parted them lacks some lanes.
func (u *uniformity) returns(fn *function, f *flowState, from int32) {
	outermost := int32(-1)
	for x := from; x > 0; x = fn.s.constructs[x].parent {
		if f.constructs[x] {
			outermost = x
		}
	}

	if outermost < 0 {
		return
	}

	todo := append(u.todo[:0], int(fn.s.constructs[outermost].header))
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, t := range fn.cfg.Succs[b] {
			if !f.late[t] {
				u.set(&f.late[t])
				todo = append(todo, t)
			}
		}
	}

	u.todo = todo
}
