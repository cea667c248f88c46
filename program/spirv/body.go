package spirv

// body is the parser's state in functions.
type body struct {
	fn     *Function
	block  *Block
	at     int  // index in insts of the function's first parameter, or the block's first instruction
	phase  int8 // of the block: phis, variables, anything
	labels []uint32

	// Room that survey counted. Functions and blocks are taken from the front.
	functions []Function
	blocks    []Block
	pointers  []*Block
	targets   []ID
}

const (
	phasePhis int8 = iota
	phaseVariables
	phaseRest
)

func (b *body) init(bound, functions, blocks, targets int) {
	b.labels = make([]uint32, bound) // by id: 1 + index of the function it is a label of
	b.functions = make([]Function, functions)
	b.blocks = make([]Block, blocks)
	b.pointers = make([]*Block, 0, blocks)
	b.targets = make([]ID, 0, targets)
}

// inFunction is OpFunction, OpFunctionParameter, OpLabel and OpFunctionEnd.
func (p *parser) inFunction(in *Inst) bool {
	if in.Op == OpFunction {
		if p.fn != nil {
			return p.refuse(codeFunctionEnd, "function %%%d has not ended", p.fn.ID())
		}
		p.fn = &p.functions[0]
		p.functions = p.functions[1:]
		p.fn.Def = *in
		p.m.defs[in.Result] = &p.fn.Def
		p.m.Functions = append(p.m.Functions, p.fn)
		p.at = len(p.insts)
		p.pointers = p.pointers[len(p.pointers):]
		return true
	}

	f := p.fn
	switch {
	case f == nil:
		return p.refuse(codePlace, "outside of a function")
	case p.block != nil:
		return p.refuse(codeBlockEnd, "block %%%d has not ended", p.block.Label)
	}

	switch in.Op {
	case OpFunctionParameter:
		if len(p.pointers) > 0 {
			return p.refuse(codePlace, "after a block")
		}
		f.Params = p.insts[p.at:len(p.insts):len(p.insts)]

	case OpLabel:
		p.block = &p.blocks[0]
		p.blocks = p.blocks[1:]
		p.block.Label, p.block.Off = in.Result, in.Off
		p.labels[in.Result] = uint32(len(p.m.Functions))
		p.pointers = append(p.pointers, p.block)
		p.at, p.phase = len(p.insts), phasePhis

	case OpFunctionEnd:
		if len(p.pointers) == 0 {
			return p.refuse(codeDeclaration, "function %%%d has no body", f.ID())
		}
		f.Blocks = p.pointers[:len(p.pointers):len(p.pointers)]
		f.End = in.Off
		p.fn = nil
		return p.resolve(f)
	}

	return true
}

// inBlock is any other instruction of a function.
func (p *parser) inBlock(in *Inst) bool {
	b := p.block
	if b == nil {
		return p.refuse(codePlace, "outside of a block")
	}

	if b.Merge != nil {
		if !mergeFits(b.Merge.Op, in.Op) {
			return p.refuse(codeMerge, "after an %s", b.Merge.Op)
		}
		p.end(in)
		return true
	}

	switch in.Op {
	case OpPhi:
		if p.phase > phasePhis {
			return p.refuse(codeFirst, "after other instructions of its block")
		}

	case OpVariable:
		if p.phase > phaseVariables || len(p.pointers) != 1 {
			return p.refuse(codeFirst, "not at the start of its function")
		}
		p.phase = phaseVariables

	case OpExtInst:
		if p.m.IsGLSL(in.Arg(0)) {
			p.phase = phaseRest
		} else {
			p.phase = max(p.phase, phaseVariables) // debug information about variables
			p.debugInst(in)
		}

	case OpSelectionMerge, OpLoopMerge:
		b.Insts = p.insts[p.at : len(p.insts)-1 : len(p.insts)-1]
		b.Merge = in

	default:
		p.phase = phaseRest
		if Terminator(in.Op) {
			b.Insts = p.insts[p.at : len(p.insts)-1 : len(p.insts)-1]
			p.end(in)
		}
	}

	return true
}

// end is the block's last instruction.
func (p *parser) end(in *Inst) {
	b := p.block
	b.Term = *in
	first := len(p.targets)
	switch in.Op {
	case OpBranch:
		p.targets = append(p.targets, in.Arg(0))

	case OpBranchConditional:
		p.targets = append(p.targets, in.Arg(1), in.Arg(2))
	case OpSwitch:
		width, _ := p.width(p.m.typeOf(in.Arg(0))) // shape has checked that it has one
		each := 1 + width/32
		if width < 32 {
			each = 2
		}
		cases := in.Args[2:]
		b.Cases = make([]uint64, 0, len(cases)/each)
		p.targets = append(p.targets, in.Arg(1))
		for ; len(cases) > 0; cases = cases[each:] {
			value := uint64(cases[0])
			switch width {
			case 8:
				value &= 0xff
			case 16:
				value &= 0xffff
			case 64:
				value |= uint64(cases[1]) << 32
			}
			b.Cases = append(b.Cases, value)
			p.targets = append(p.targets, ID(cases[each-1]))
		}
	}

	b.Targets = p.targets[first:len(p.targets):len(p.targets)]
	p.block = nil
	p.line = Line{}
}

// resolve checks the labels of a function, when all of them are known.
func (p *parser) resolve(f *Function) bool {
	known := func(at *Inst, label ID) bool {
		if p.labels[label] == uint32(len(p.m.Functions)) {
			return true
		}
		p.op, p.off, p.line = at.Op, at.Off, at.Line
		return p.refuse(codeTarget, "%%%d is not a label of function %%%d", label, f.ID())
	}

	for _, b := range f.Blocks {
		if b.Merge != nil && !known(b.Merge, b.Merge.Arg(0)) {
			return false
		}
		if b.Merge != nil && b.Merge.Op == OpLoopMerge && !known(b.Merge, b.Merge.Arg(1)) {
			return false
		}
		for _, label := range b.Targets {
			if !known(&b.Term, label) {
				return false
			}
		}
	}

	return true
}

// Terminator reports whether op ends a block.
func Terminator(op Opcode) bool {
	switch op {
	case OpBranch, OpBranchConditional, OpSwitch, OpReturn, OpReturnValue, OpKill, OpUnreachable,
		OpTerminateInvocation, OpIgnoreIntersectionKHR, OpTerminateRayKHR, OpEmitMeshTasksEXT:
		return true
	}
	return false
}

// mergeFits reports whether a merge instruction may come before a terminator.
func mergeFits(merge, term Opcode) bool {
	switch term {
	case OpBranchConditional:
		return true
	case OpBranch:
		return merge == OpLoopMerge
	case OpSwitch:
		return merge == OpSelectionMerge
	}
	return false
}
