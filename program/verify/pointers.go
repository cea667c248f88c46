package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// Pointers that are chosen when a program runs (SPV_KHR_variable_pointers): they come
// from OpSelect, OpPhi, calls, parameters, OpConstantNull, OpUndef, and variables that
// hold pointers. Which bindings one may lead into is found by following all of them,
// whatever the order of instructions.

// edge says that where a pointer may lead, another may lead too: to comes from from.
// The pointers in a variable are those of its id, a function's results those of its id.
type edge struct{ to, from spirv.ID }

// reach is where a pointer may lead.
type reach struct {
	buffers uint32 // a bit for each binding
	flags   uint8  // noWrite, noRead: by the members on some way there
}

// opened is a pointer into one of an array of buffers, by an index that the run tells.
type opened struct {
	id spirv.ID
	reach
}

// opensBuffer records a chain from an array of buffers into any of them. The capabilities
// for such an index are not asked for: glslang leaves them out.
func (v *verifier) opensBuffer(in *spirv.Inst, array *idInfo) {
	if v.chosen == nil {
		v.chosen = in
	}
	r := reach{flags: array.flags & (noWrite | noRead)}
	for b := range bufferCount(v.info(array.root).typ.elem) {
		r.buffers |= 1 << (int(v.info(array.root).num) + b)
	}
	v.opened = append(v.opened, opened{in.Result, r})
}

// through is an access by a pointer that is chosen when the program runs.
type through struct {
	in      *spirv.Inst
	pointer spirv.ID
	access  program.Access
}

// choosable reports whether pointers of a type may be chosen when the program runs.
func (v *verifier) choosable(t *typ) bool {
	switch {
	case t == nil || t.kind != kPointer:
		return false
	case t.class == spirv.StorageClassStorageBuffer:
		return v.caps[spirv.CapabilityVariablePointersStorageBuffer]
	case t.class == spirv.StorageClassWorkgroup:
		return v.caps[spirv.CapabilityVariablePointers]
	}
	return false
}

// chooses refuses an instruction with a pointer as result that may not have one.
func (v *verifier) chooses(in *spirv.Inst, t *typ) *program.Refusal {
	switch {
	case v.choosable(t):
		if v.chosen == nil {
			v.chosen = in
		}
		return nil
	case t.class == spirv.StorageClassStorageBuffer:
		return v.refuse(CodePointer, in, "a choice of pointers, without capability VariablePointersStorageBuffer")
	case t.class == spirv.StorageClassWorkgroup:
		return v.refuse(CodePointer, in, "a choice of pointers, without capability VariablePointers")
	}
	return v.refuse(CodePointer, in, "a choice of pointers to storage class %v", t.class)
}

// becomes records that a pointer becomes a value by an instruction: to leads where
// from does.
func (v *verifier) becomes(in *spirv.Inst, to, from spirv.ID) *program.Refusal {
	i := v.info(from)
	if i.typ.elem.matrices || i.flags&inMatrix != 0 {
		return v.refuse(CodePointer, in, "a pointer to a matrix, or into one, that is chosen when the program runs")
	}
	if i.typ.class == spirv.StorageClassStorageBuffer && i.member == 0 && v.isBufferArray(i.root, i.typ.elem) && i.typ.elem.kind == kArray {
		return v.refuse(CodeBinding, in, "a choice of an array of buffers as a whole")
	}
	if v.chosen == nil {
		v.chosen = in
	}
	v.flows = append(v.flows, edge{to, from})
	return nil
}

// handed checks the argument for a parameter that is a pointer. Without variable
// pointers it is a whole variable, or a parameter.
func (v *verifier) handed(in *spirv.Inst, t *typ, parameter, arg spirv.ID) *program.Refusal {
	v.stored(arg)
	v.stored(arg) // how often the callee does is not known
	i := v.info(arg)
	whole := i.what == isVariable || i.what == isParameter
	if !whole && !v.choosable(t) {
		return v.refuse(CodePointer, in, "the argument %%%d points into a variable; it is to be the variable or a parameter", arg)
	}
	if t.elem.kind == kPointer { // caller and callee put pointers into one variable
		v.flows = append(v.flows, edge{parameter, arg}, edge{i.root, parameter})
		return nil
	}
	if !whole || t.class == spirv.StorageClassStorageBuffer {
		return v.becomes(in, parameter, arg)
	}
	return nil
}

// reachOf is where a pointer to a buffer may lead.
func (v *verifier) reachOf(pointer spirv.ID) reach {
	i := v.info(pointer)
	if v.info(i.root).what == isVariable && i.typ.elem.kind != kPointer {
		r := reach{flags: i.flags & (noWrite | noRead)}
		if b, n := v.bufferOf(pointer); b >= 0 && n == 1 && i.typ.class != spirv.StorageClassWorkgroup {
			r.buffers = 1 << b
		}
		return r
	}
	if v.reach == nil {
		return reach{}
	}
	r := v.reach[i.root]
	r.flags |= i.flags & (noWrite | noRead)
	return r
}

// pointers follows the flows to their ends, and then records and checks what the code
// does through them. A flow is followed as often as its source grows: at most once for
// each binding and flag.
func (v *verifier) pointers() *program.Refusal {
	if len(v.flows) == 0 && len(v.opened) == 0 {
		return nil
	}

	v.reach = make([]reach, len(v.ids))
	for _, o := range v.opened {
		v.reach[o.id] = o.reach
	}
	next := make([]int32, len(v.flows)) // of a list of flows from one root: 1 + an index
	head := make([]int32, len(v.ids))
	rootOf := func(id spirv.ID) spirv.ID {
		if r := v.info(id).root; r != 0 {
			return r
		}
		return id // a function
	}
	for i, f := range v.flows {
		from := rootOf(f.from)
		next[i], head[from] = head[from], int32(i+1)
	}

	queued := make([]bool, len(v.ids))
	var todo []spirv.ID
	for i := range v.flows {
		if from := rootOf(v.flows[i].from); !queued[from] {
			queued[from] = true
			todo = append(todo, from)
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		queued[at] = false
		for i := head[at]; i != 0; i = next[i-1] {
			f := v.flows[i-1]
			from := v.reach[at]
			if i := v.info(f.from); i.what != isFunction && v.info(i.root).what != isFunction {
				from = v.reachOf(f.from)
				if i.typ.elem.kind == kPointer {
					from = v.reach[at] // of the pointers in a variable
				}
			}
			to := &v.reach[f.to]
			if grown := (reach{to.buffers | from.buffers, to.flags | from.flags}); grown != *to {
				if *to = grown; !queued[f.to] {
					queued[f.to] = true
					todo = append(todo, f.to)
				}
			}
		}
	}

	return v.accesses()
}

// accesses records and checks the accesses by pointers that are chosen.
func (v *verifier) accesses() *program.Refusal {
	for i := range v.functions {
		fn := &v.functions[i]
		for _, t := range fn.through {
			r := v.reachOf(t.pointer)
			if t.access&program.Write != 0 && r.flags&noWrite != 0 {
				return v.refuse(CodeAccess, t.in, "a write to what may be NonWritable")
			}
			for b := range fn.use {
				if r.buffers>>b&1 != 0 {
					fn.use[b] |= t.access
				}
			}
		}
	}
	return nil
}

// ptrAccessChain checks a step from an element to another one of an array that a
// pointer leads into, and the access chain behind it. The step may lead anywhere in
// the pointer's memory.
func ptrAccessChain(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	p, r := v.pointer(in, 0)
	if r != nil {
		return r
	}
	if !v.choosable(p) {
		return v.refuse(CodePointer, in, "a step of a pointer to storage class %v, or without capability VariablePointers", p.class)
	}
	if len(in.Args) < 2 {
		return v.refuse(CodeOperand, in, "without an element")
	}
	if r := v.index(in, 1); r != nil {
		return r
	}

	if p.class == spirv.StorageClassStorageBuffer {
		d := v.dec(p.id(), spirv.DecorationArrayStride)
		if d == nil {
			return v.refuse(CodeLayout, in, "a step of a pointer, the type of which has no ArrayStride")
		}
		if stride := uint32(d.Arg(2)); stride == 0 || stride > maxExtent || stride%max(p.elem.align, 1) != 0 {
			return v.refuse(CodeLayout, d, "a stride of %d for what is aligned to %d", stride, p.elem.align)
		}
	}
	if p.elem.bits&hasRuntime != 0 || p.elem.launch {
		return v.refuse(CodePointer, in, "a step of a pointer to what has no size of its own")
	}
	if r := v.becomes(in, in.Result, in.Arg(0)); r != nil {
		return r
	}
	if r := v.chain(in, t, p, 2); r != nil {
		return r
	}
	v.cur.root, v.cur.member = 0, 0 // resultOf makes it a root
	return nil
}

// ptrEqual checks a comparison of pointers.
func ptrEqual(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.isScalar(kBool) {
		return v.badResult(in, "a bool")
	}
	a, b := v.arg(in, 0), v.arg(in, 1)
	if v.cur.bad == nil && (a != b || !v.choosable(a)) {
		return v.refuse(CodePointer, in, "a comparison of other than two pointers of one type that may be chosen")
	}
	if v.chosen == nil {
		v.chosen = in
	}
	return nil
}
