package verify

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// function is the state of a function.
type function struct {
	f       *spirv.Function
	typ     *typ
	cfg     *spirv.CFG
	s       *structure
	calls   []callSite
	globals []spirv.ID // variables outside functions that it names, with repeats

	use     [program.MaxBindings]program.Access
	through []through
	atomics []*spirv.Inst

	instructions uint64 // with calls expanded, from calls on
	registers    uint64 // bytes of all results, likewise
	stack        uint64 // bytes of variables along the deepest path, likewise
	bits         uint8  // widths that it computes with: see has*
	features     featureSet
	reached      bool
	barriers     bool
}

type callSite struct {
	in     *spirv.Inst
	block  int32
	callee int32
}

// code checks the functions.
func (v *verifier) code() *program.Refusal {
	v.functions = make([]function, len(v.m.Functions))
	for i, f := range v.m.Functions {
		v.functions[i].f = f
		v.ids[f.ID()] = idInfo{what: isFunction, num: int32(i)}
		for _, b := range f.Blocks {
			v.ids[b.Label].what = isLabel
		}
	}

	for i := range v.functions {
		fn := &v.functions[i]
		v.cur.fn, v.cur.at, v.cur.cfg = int32(i+1), 0, nil
		if r := v.function(fn); r != nil {
			v.calledFrom(fn.f, r)
			return r
		}
	}

	return nil
}

func (v *verifier) function(fn *function) *program.Refusal {
	f := fn.f
	in := &f.Def
	if in.Arg(0) > 15 {
		return v.refuse(CodeMemory, in, "function control %#x", in.Arg(0))
	}

	t := v.typeAt(in.Arg(1))
	if t == nil || t.kind != kFunction {
		return v.refuse(CodeFunction, in, "%%%d is no function type", in.Arg(1))
	}
	if fn.typ = t; v.typeAt(in.Type) != t.elem {
		return v.refuse(CodeFunction, in, "the result type is not the function type's")
	}

	if f == v.iface.entry {
		if t.elem.kind != kVoid {
			return v.refuse(CodeNotVoid, in, "the kernel %q returns a value", v.iface.entryName)
		}
		if len(t.members) != 0 {
			return v.refuse(CodeInterface, in, "the kernel %q has parameters", v.iface.entryName)
		}
	}

	if len(f.Params) != len(t.members) {
		return v.refuse(CodeFunction, in, "%d parameters, %d in the function type", len(f.Params), len(t.members))
	}

	for i := range f.Params {
		if r := v.parameter(&f.Params[i], t.members[i]); r != nil {
			return r
		}
	}

	if len(f.Blocks) == 0 {
		return v.refuse(CodeFunction, in, "no body")
	}

	fn.cfg = spirv.NewCFG(f)
	v.cur.cfg = fn.cfg
	if len(fn.cfg.Preds[0]) != 0 {
		return v.refuse(CodeBranch, &f.Blocks[fn.cfg.Preds[0][0]].Term, "a branch to the entry block")
	}

	for i, b := range f.Blocks {
		if d := fn.cfg.Idom[i]; d > i {
			return program.Refuse(CodeOrder, spirv.OpLabel.String(), b.Off, "the block %%%d is before %%%d, which dominates it", b.Label, f.Blocks[d].Label)
		}
		v.cur.at = int32(i)
		if r := v.blockCode(fn, b); r != nil {
			return r
		}
	}

	if r := v.phis(fn); r != nil {
		return r
	}

	s, r := v.structured(fn)
	fn.s = s
	return r
}

func (v *verifier) parameter(in *spirv.Inst, t *typ) *program.Refusal {
	if v.typeAt(in.Type) != t {
		return v.refuse(CodeFunction, in, "a parameter that is not of the function type's")
	}

	if t.kind == kPointer {
		switch {
		case t.class == spirv.StorageClassFunction, t.class == spirv.StorageClassPrivate, t.class == spirv.StorageClassWorkgroup:
		case v.choosable(t):
			if v.chosen == nil {
				v.chosen = in
			}
		default:
			return v.refuse(CodePointer, in, "a pointer to storage class %v is handed to a function", t.class)
		}
	} else if t.bytes > uint64(v.lim.ValueBytes) {
		return v.refuse(CodeLarge, in, "a value of %d bytes; the limit is %d", t.bytes, v.lim.ValueBytes)
	}

	if t.launch && t.kind != kPointer {
		return v.refuse(CodeSpecID, in, "a value whose size is the launch's")
	}

	v.ids[in.Result] = idInfo{what: isParameter, typ: t, fn: v.cur.fn, root: in.Result, num: -1}
	return nil
}

// blockCode checks a block's instructions in their order.
func (v *verifier) blockCode(fn *function, b *spirv.Block) *program.Refusal {
	const (
		inPhis = iota
		inVariables
		inCode
	)

	stage := inPhis
	for j := range b.Insts {
		in := &b.Insts[j]
		fn.instructions++
		var r *program.Refusal
		switch in.Op {
		case spirv.OpPhi:
			if stage != inPhis || v.cur.at == 0 {
				return v.refuse(CodeOrder, in, "not at the start of a block with predecessors")
			}
			r = v.phiType(fn, in)

		case spirv.OpVariable:
			if class := spirv.StorageClass(in.Arg(0)); class == spirv.StorageClassWorkgroup {
				return v.refuse(CodeSharedPlace, in, "shared memory is declared outside functions")
			}
			if stage == inCode || v.cur.at != 0 {
				return v.refuse(CodeOrder, in, "not at the start of the function")
			}
			stage = inVariables
			r = v.localVariable(fn, in)

		case spirv.OpNop, spirv.OpLine, spirv.OpNoLine:
		default:
			if in.Op != spirv.OpExtInst || in.Arg(0) == v.glsl {
				stage = inCode
			}
			r = v.instruction(fn, in)
		}

		if r != nil {
			return r
		}
	}

	fn.instructions++
	return v.terminator(fn, b)
}

// resultOf checks the type of a result and records the value.
func (v *verifier) resultOf(fn *function, in *spirv.Inst, t *typ) *program.Refusal {
	i := &v.ids[in.Result]
	*i = idInfo{what: isValue, typ: t, fn: v.cur.fn, block: v.cur.at, num: -1}
	if t.kind == kPointer {
		i.root, i.flags, i.member = v.cur.root, v.cur.rootFlags&(noWrite|noRead|inMatrix), v.cur.member
		if i.root == 0 {
			i.root = in.Result // chosen when the program runs
		}
		fn.registers += 8
		return nil
	}

	if t.bytes > uint64(v.lim.ValueBytes) {
		return v.refuse(CodeLarge, in, "a value of %d bytes; the limit is %d", t.bytes, v.lim.ValueBytes)
	}
	if t.launch {
		return v.refuse(CodeSpecID, in, "a value whose size is the launch's")
	}

	fn.registers += roundUp(t.bytes, 4)
	fn.bits |= t.bits
	return nil
}

func (v *verifier) instruction(fn *function, in *spirv.Inst) *program.Refusal {
	if in.Type == 0 {
		if r := v.typed(in, nil); r != nil {
			return r
		}
		fn.note(v, in)
		return nil
	}

	if ruleOf(in.Op) == nil {
		return v.outside(in)
	}

	t := v.typeAt(in.Type)
	if t == nil {
		return v.refuse(CodeID, in, "%%%d is no type", in.Type)
	}

	void := in.Op == spirv.OpFunctionCall || in.Op == spirv.OpExtInst && in.Arg(0) != v.glsl
	if !t.value() && !(void && t.kind == kVoid) {
		return v.refuse(CodeResult, in, "no value has the type %%%d", in.Type)
	}

	if t.kind == kPointer {
		v.cur.root, v.cur.rootFlags, v.cur.member = 0, 0, 0
		switch in.Op {
		case spirv.OpAccessChain, spirv.OpInBoundsAccessChain, spirv.OpPtrAccessChain, spirv.OpCopyObject:
		case spirv.OpSelect, spirv.OpLoad, spirv.OpUndef, spirv.OpFunctionCall:
			if r := v.chooses(in, t); r != nil {
				return r
			}
		default:
			return v.refuse(CodePointer, in, "a pointer from %v", in.Op)
		}
	}

	if r := v.typed(in, t); r != nil {
		return r
	}

	fn.note(v, in)
	if t.kind == kVoid || in.Op == spirv.OpExtInst && in.Arg(0) != v.glsl {
		return nil
	}

	return v.resultOf(fn, in, t)
}

func (v *verifier) localVariable(fn *function, in *spirv.Inst) *program.Refusal {
	t := v.typeAt(in.Type)
	if t == nil || t.kind != kPointer {
		return v.refuse(CodeVariable, in, "%%%d is no pointer type", in.Type)
	}
	if class := spirv.StorageClass(in.Arg(0)); class != t.class || class != spirv.StorageClassFunction {
		return v.refuse(CodeVariable, in, "storage class %v in a function, %v in its type", class, t.class)
	}
	if t.elem.bits&hasRuntime != 0 {
		return v.refuse(CodeVariable, in, "a variable without a size")
	}
	if r := v.narrow(in, t); r != nil {
		return r
	}
	if t.elem.dynamic {
		return v.refuse(CodeSpecID, in, "the dynamic array's length outside shared memory")
	}

	stores := int32(neverStored)
	if len(in.Args) > 1 {
		stores = onceStored
		if init := v.info(in.Arg(1)); init.what != isConstant || init.typ != t.elem {
			return v.refuse(CodeVariable, in, "initializer %%%d is no constant of its type", in.Arg(1))
		}
	}

	v.ids[in.Result] = idInfo{what: isVariable, typ: t, fn: v.cur.fn, block: v.cur.at, root: in.Result, num: stores}
	fn.stack = min(huge, fn.stack+roundUp(t.elem.bytes, 4))
	fn.bits |= t.elem.bits
	return nil
}

func (v *verifier) terminator(fn *function, b *spirv.Block) *program.Refusal {
	in := &b.Term
	v.cur.bad, v.cur.small = nil, false
	switch in.Op {
	case spirv.OpBranch, spirv.OpUnreachable:
		return nil

	case spirv.OpBranchConditional:
		if t := v.arg(in, 0); v.cur.bad == nil && t.kind != kBool {
			return v.badOperand(in, 0, "a bool")
		}
		if len(in.Args) != 3 && len(in.Args) != 5 {
			return v.refuse(CodeBranch, in, "branch weights come in twos")
		}
		if v.m.Version >= version16 && in.Args[1] == in.Args[2] {
			return v.refuse(CodeBranch, in, "both ways are the same, as they may be before SPIR-V 1.6")
		}

	case spirv.OpSwitch:
		if t := v.arg(in, 0); v.cur.bad == nil && t.kind != kInt {
			return v.badOperand(in, 0, "an integer")
		}
		sorted := slices.Clone(b.Cases)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != len(b.Cases) {
			return v.refuse(CodeSwitch, in, "a case twice")
		}

	case spirv.OpReturn:
		if fn.typ.elem.kind != kVoid {
			return v.refuse(CodeReturn, in, "no value is returned, and the function has one")
		}

	case spirv.OpReturnValue:
		v.cur.small = true
		t := v.arg(in, 0)
		switch {
		case v.cur.bad != nil:
		case t != fn.typ.elem:
			return v.refuse(CodeReturn, in, "%%%d is not of the function's type", in.Arg(0))
		case t.kind == kPointer:
			return v.becomes(in, fn.f.ID(), in.Arg(0))
		}

	default:
		return v.outside(in)
	}

	return v.cur.bad
}

func call(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	f := v.info(in.Arg(0))
	if f.what != isFunction {
		return v.refuse(CodeDispatch, in, "%%%d is no function; what is called is known when the module is loaded", in.Arg(0))
	}

	callee := &v.functions[f.num]
	if callee.f == v.iface.entry {
		return v.refuse(CodeCall, in, "a call of the entry point")
	}

	ft := v.typeAt(callee.f.Def.Arg(1))
	if ft == nil || ft.kind != kFunction || ft.elem != t {
		return v.refuse(CodeCall, in, "the result type is not the callee's")
	}
	if len(in.Args)-1 != len(ft.members) || len(callee.f.Params) != len(ft.members) {
		return v.refuse(CodeCall, in, "%d arguments of %d", len(in.Args)-1, len(ft.members))
	}

	for i, want := range ft.members {
		if a := v.arg(in, i+1); v.cur.bad == nil && a != want {
			return v.refuse(CodeCall, in, "argument %%%d is not of the parameter's type", in.Arg(i+1))
		}
		if want.kind == kPointer && v.cur.bad == nil {
			if r := v.handed(in, want, callee.f.Params[i].Result, in.Arg(i+1)); r != nil {
				return r
			}
		}
	}
	if t.kind == kPointer {
		v.flows = append(v.flows, edge{in.Result, callee.f.ID()})
	}

	fn := &v.functions[v.cur.fn-1]
	fn.calls = append(fn.calls, callSite{in, v.cur.at, f.num})
	return nil
}
