package spirvtest

import "capgpu/program/spirv"

// Func begins a function, and its entry block.
func (b *Builder) Func(result spirv.ID, params ...spirv.ID) spirv.ID {
	id := b.FuncHead(result, params...)
	b.Begin(b.ID())
	return id
}

// FuncHead begins a function, and no block.
func (b *Builder) FuncHead(result spirv.ID, params ...spirv.ID) spirv.ID {
	t := b.FuncType(result, params...)
	id := b.ID()
	b.entry, b.locals, b.blocks, b.params = nil, nil, nil, nil
	b.fn, b.open = true, false
	b.Do(spirv.OpFunction, result, id, spirv.FunctionControlNone, t)
	for _, p := range params {
		b.params = append(b.params, b.Op(spirv.OpFunctionParameter, p))
	}
	return id
}

// Param is parameter i of the function at hand.
func (b *Builder) Param(i int) spirv.ID { return b.params[i] }

// End ends the function.
func (b *Builder) End() {
	b.Do(spirv.OpFunctionEnd)
	p := &b.parts[partFunctions]
	*p = append(append(append(*p, b.entry...), b.locals...), b.blocks...)
	b.fn, b.open = false, false
}

// Begin begins a block.
func (b *Builder) Begin(label spirv.ID) {
	b.Do(spirv.OpLabel, label)
	b.open = true
}

// Do adds an instruction to the block; its result, if it has one, is among args.
func (b *Builder) Do(op spirv.Opcode, args ...any) {
	words := inst(op, Words(args...))
	switch {
	case !b.fn:
		b.parts[partFunctions] = append(b.parts[partFunctions], words...)
	case !b.open:
		b.entry = append(b.entry, words...)
	default:
		b.blocks = append(b.blocks, words...)
	}
}

// Op adds an instruction with a result.
func (b *Builder) Op(op spirv.Opcode, t spirv.ID, args ...any) spirv.ID {
	id := b.ID()
	b.Do(op, t, id, args)
	return id
}

// Ext adds an instruction of GLSL.std.450.
func (b *Builder) Ext(g spirv.GLSL, t spirv.ID, args ...any) spirv.ID {
	return b.Op(spirv.OpExtInst, t, b.GLSL(), g, args)
}

// Local is a new variable of the function, whatever the current block.
func (b *Builder) Local(t spirv.ID, init ...spirv.ID) spirv.ID {
	pointer := b.Pointer(spirv.StorageClassFunction, t)
	id := b.ID()
	b.locals = append(b.locals, inst(spirv.OpVariable, Words(pointer, id, spirv.StorageClassFunction, init))...)
	return id
}

// Line adds an OpLine.
func (b *Builder) Line(file spirv.ID, line, col uint32) { b.Do(spirv.OpLine, file, line, col) }

// Load is an OpLoad.
func (b *Builder) Load(t, p spirv.ID) spirv.ID { return b.Op(spirv.OpLoad, t, p) }

// Store is an OpStore.
func (b *Builder) Store(p, v spirv.ID) { b.Do(spirv.OpStore, p, v) }

// Access is an OpAccessChain to a t.
func (b *Builder) Access(c spirv.StorageClass, t, base spirv.ID, path ...spirv.ID) spirv.ID {
	return b.Op(spirv.OpAccessChain, b.Pointer(c, t), base, path)
}

// Call is an OpFunctionCall.
func (b *Builder) Call(result, fn spirv.ID, args ...spirv.ID) spirv.ID {
	return b.Op(spirv.OpFunctionCall, result, fn, args)
}

// Barrier is the control barrier of GLSL's barrier(), which orders shared memory.
func (b *Builder) Barrier() {
	semantics := spirv.MemorySemanticsAcquireRelease | spirv.MemorySemanticsWorkgroupMemory
	w := b.U32(uint32(spirv.ScopeWorkgroup))
	b.Do(spirv.OpControlBarrier, w, w, b.U32(uint32(semantics)))
}

// Branch is an OpBranch.
func (b *Builder) Branch(label spirv.ID) { b.Do(spirv.OpBranch, label) }

// BranchIf is an OpBranchConditional.
func (b *Builder) BranchIf(cond, yes, no spirv.ID) { b.Do(spirv.OpBranchConditional, cond, yes, no) }

// Return is an OpReturn.
func (b *Builder) Return() { b.Do(spirv.OpReturn) }

// ReturnValue is an OpReturnValue.
func (b *Builder) ReturnValue(v spirv.ID) { b.Do(spirv.OpReturnValue, v) }

// SelectionMerge is an OpSelectionMerge.
func (b *Builder) SelectionMerge(merge spirv.ID) {
	b.Do(spirv.OpSelectionMerge, merge, spirv.SelectionControlNone)
}

// LoopMerge is an OpLoopMerge.
func (b *Builder) LoopMerge(merge, cont spirv.ID) {
	b.Do(spirv.OpLoopMerge, merge, cont, spirv.LoopControlNone)
}

// If is a selection; no may be nil. The functions write the blocks' contents. A
// function that ends its block (returns, breaks) returns false.
func (b *Builder) If(cond spirv.ID, yes, no func() bool) {
	then, other, merge := b.ID(), b.ID(), b.ID()
	b.SelectionMerge(merge)
	if no == nil {
		other = merge
	}

	b.BranchIf(cond, then, other)
	b.Begin(then)
	if yes() {
		b.Branch(merge)
	}

	if no != nil {
		b.Begin(other)
		if no() {
			b.Branch(merge)
		}
	}

	b.Begin(merge)
}

// Loop is for (; cond(); next()) body(brk, cont). The body may branch to brk and
// cont; if it ends its block it returns false.
func (b *Builder) Loop(cond func() spirv.ID, body func(brk, cont spirv.ID) bool, next func()) {
	head, test, inner, cont, merge := b.ID(), b.ID(), b.ID(), b.ID(), b.ID()
	b.Branch(head)
	b.Begin(head)
	b.LoopMerge(merge, cont)
	b.Branch(test)
	b.Begin(test)
	b.BranchIf(cond(), inner, merge)
	b.Begin(inner)
	if body(merge, cont) {
		b.Branch(cont)
	}
	b.Begin(cont)
	next()
	b.Branch(head)
	b.Begin(merge)
}

// Case is one case of a Switch.
type Case struct {
	Value uint32
	Body  func() bool // false: it ended its block
}

// Switch is an OpSwitch on a value of 32 bits; every case breaks.
func (b *Builder) Switch(v spirv.ID, other func() bool, cases ...Case) {
	rest, merge := b.ID(), b.ID()
	args := []any{v, rest}
	labels := make([]spirv.ID, len(cases))
	for i, c := range cases {
		labels[i] = b.ID()
		args = append(args, c.Value, labels[i])
	}

	b.SelectionMerge(merge)
	b.Do(spirv.OpSwitch, args...)
	for i, c := range cases {
		b.Begin(labels[i])
		if c.Body() {
			b.Branch(merge)
		}
	}

	b.Begin(rest)
	if other() {
		b.Branch(merge)
	}

	b.Begin(merge)
}
