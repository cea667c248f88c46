package spirv

// ID names a result within a module: 1 to Bound-1. 0 is no id.
type ID uint32

// Inst is one instruction. Args are the words after result type and result; they
// alias the words that the module was parsed from and are not to be written.
type Inst struct {
	Op     Opcode
	Type   ID // result type; 0 if it has none
	Result ID // 0 if it has none
	Args   []uint32
	Off    uint32 // bytes from the start of the module
	Line   Line   // in the source, from OpLine
}

// Arg is the i-th argument as an id; 0 if there is none.
func (i *Inst) Arg(n int) ID {
	if n < len(i.Args) {
		return ID(i.Args[n])
	}
	return 0
}

// SecondMask is the argument of an OpCopyMemory that is the mask for its load, where
// the first is for its store; 0 if it has one mask for both, or none.
func (i *Inst) SecondMask() int {
	const mask = 2
	if len(i.Args) <= mask {
		return 0
	}

	at := mask + 1
	for _, e := range KindMemoryAccess.info().values {
		if i.Args[mask]&e.value != 0 {
			at += len(e.params)
		}
	}
	if at >= len(i.Args) {
		return 0
	}
	return at
}

// Line is a place in the source text. The zero Line is unknown.
type Line struct {
	File ID // an OpString
	Line uint32
	Col  uint32
}

// Module is a parsed module. Every instruction's shape was checked against the
// grammar, every id is below Bound, every result is defined once, and the sections
// are in the order of the specification (2.4). Nothing is known of its meaning: the
// verifier checks types, dominance and limits.
type Module struct {
	Version   uint32 // 0x00010300 for 1.3
	Generator uint32
	Bound     uint32
	Words     []uint32 // the whole module, in host byte order

	Capabilities []Inst // OpCapability
	Extensions   []Inst // OpExtension
	Imports      []Inst // OpExtInstImport
	MemoryModel  Inst
	EntryPoints  []Inst // OpEntryPoint
	Modes        []Inst // OpExecutionMode, OpExecutionModeId
	Debug        []Inst // OpString, OpSource…, OpName, OpMemberName, OpModuleProcessed
	Annotations  []Inst // OpDecorate…, OpMemberDecorate…; decoration groups are applied
	Globals      []Inst // types, constants, OpVariable outside functions, OpUndef
	Functions    []*Function

	insts []Inst  // all but OpLine and OpNoLine, in order
	defs  []*Inst // by id; nil if nothing defines it
	index index
}

// Function is one function with a body. (The profile has no imports, so every
// function has one.)
type Function struct {
	Def    Inst   // OpFunction; Args: function control, function type
	Params []Inst // OpFunctionParameter
	Blocks []*Block
	End    uint32 // byte offset of OpFunctionEnd
}

// ID is the function's id.
func (f *Function) ID() ID { return f.Def.Result }

// Block is a label, the instructions after it, and its end. Merge, if not nil, is
// the OpSelectionMerge or OpLoopMerge, which comes right before the terminator;
// neither is in Insts.
type Block struct {
	Label ID
	Off   uint32
	Insts []Inst // OpPhi first, OpVariable (in the entry block) after them
	Merge *Inst
	Term  Inst // OpBranch, OpBranchConditional, OpSwitch, OpReturn…, OpKill, OpUnreachable

	// Targets are the labels to which Term leads, in its order: true, false of an
	// OpBranchConditional; the default, then the cases of an OpSwitch. A label may
	// appear more than once.
	Targets []ID
	// Cases are the literals of an OpSwitch: Targets[i+1] is Cases[i]'s. They are
	// cut to the width of the selector's type, and not sign-extended.
	Cases []uint64
}

// Def is the instruction that defines id: one of Globals, Imports, Debug
// (OpString), a function, a parameter or an instruction of a block; nil for a
// label or an id that nothing defines.
func (m *Module) Def(id ID) *Inst {
	if uint64(id) >= uint64(len(m.defs)) {
		return nil
	}
	return m.defs[id]
}
