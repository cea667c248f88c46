package spirv

import (
	"encoding/binary"

	"capgpu/program"
)

const (
	magic        = 0x07230203
	magicSwapped = 0x03022307
	headerWords  = 5
)

// Parse reads a module in either byte order. It never panics, and it takes time and
// memory in proportion to the number of bytes: at most 64 × len(data) + 64 KiB. A
// refusal is a *program.Refusal with one of Codes.
func Parse(data []byte) (*Module, error) {
	p := parser{m: &Module{}}
	if !p.header(data) || !p.survey() || !p.instructions() || !p.finish() || !p.m.index.build(&p) {
		return nil, p.refusal
	}
	return p.m, nil
}

// parser goes over the words once to count, and once to read. Instructions lie in
// one slice, in order: the module's sections and the blocks are parts of it.
type parser struct {
	m       *Module
	refusal *program.Refusal

	insts   []Inst // all but OpLine and OpNoLine; never grows beyond what was counted
	starts  [numSections + 1]int
	section section
	line    Line
	debug   ID // import of NonSemantic.Shader.DebugInfo.100

	op  Opcode // the instruction at hand
	off uint32

	body
}

// refuse records a refusal at the current instruction, and returns false.
func (p *parser) refuse(code, format string, args ...any) bool {
	var op string
	if p.off != 0 {
		op = p.op.String()
	}
	p.refusal = program.Refuse(code, op, p.off, format, args...)
	p.refusal.Source = p.m.Source(p.line)
	return false
}

func (p *parser) header(data []byte) bool {
	switch {
	case len(data) < 4*headerWords:
		return p.refuse(codeSize, "%d bytes are less than a header", len(data))
	case len(data)%4 != 0:
		return p.refuse(codeSize, "%d bytes are not whole words", len(data))
	case len(data) > program.MaxBundleBytes:
		return p.refuse(codeSize, "%d bytes are more than the %d of a bundle", len(data), program.MaxBundleBytes)
	}

	words := make([]uint32, len(data)/4)
	switch first := binary.LittleEndian.Uint32(data); first {
	case magic:
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(data[4*i:])
		}
	case magicSwapped:
		for i := range words {
			words[i] = binary.BigEndian.Uint32(data[4*i:])
		}
	default:
		return p.refuse(codeMagic, "the first word is %#08x, not %#08x", first, magic)
	}

	m := p.m
	m.Words, m.Version, m.Generator, m.Bound = words, words[1], words[2], words[3]
	if m.Version&^0xff00 != 0x10000 || m.Version > 0x10600 {
		return p.refuse(codeVersion, "version word %#08x is not one of 1.0 to 1.6", m.Version)
	}
	if words[4] != 0 {
		return p.refuse(codeSchema, "schema %d is not 0", words[4])
	}

	// Tables by id must stay in proportion to the module. An id takes two words to
	// define, so this leaves room for the gaps of tools that delete instructions
	// and do not renumber.
	if limit := 4*uint64(len(words)) + 1024; m.Bound == 0 || uint64(m.Bound) > limit {
		return p.refuse(codeBound, "bound %d is not between 1 and %d, for %d words", m.Bound, limit, len(words))
	}

	return true
}

// survey checks that instructions follow one another to the last word, and makes
// room for them.
func (p *parser) survey() bool {
	words := p.m.Words
	var insts, functions, blocks, targets int
	for at := headerWords; at < len(words); {
		op, n := Opcode(words[at]), int(words[at]>>16)
		if n == 0 || n > len(words)-at {
			p.op, p.off = op, uint32(4*at)
			return p.refuse(codeWordCount, "%d words, of %d that are left", n, len(words)-at)
		}

		insts++
		switch op {
		case OpLine, OpNoLine:
			insts--
		case OpFunction:
			functions += n / 5
		case OpLabel:
			blocks += n / 2
		case OpBranch, OpBranchConditional, OpSwitch:
			targets += n - 1
		}

		at += n
	}

	p.insts = make([]Inst, 0, insts)
	p.m.defs = make([]*Inst, p.m.Bound)
	p.body.init(int(p.m.Bound), functions, blocks, targets)
	return true
}

func (p *parser) instructions() bool {
	words := p.m.Words
	for at := headerWords; at < len(words); {
		op, n := Opcode(words[at]), int(words[at]>>16)
		p.op, p.off = op, uint32(4*at)
		info := op.Info()
		if info == nil {
			return p.refuse(codeOpcode, "unknown opcode %d", uint16(op))
		}

		args := words[at+1 : at+n : at+n]
		at += n
		if info.section == sectionLine {
			if !p.setLine(info, args) {
				return false
			}
			continue
		}

		p.insts = append(p.insts, Inst{Op: op, Off: p.off, Line: p.line})
		in := &p.insts[len(p.insts)-1]
		if !p.shape(in, info, args) || !p.define(in) || !p.place(in, info) {
			return false
		}
	}

	return true
}

// define records a result.
func (p *parser) define(in *Inst) bool {
	if in.Result == 0 {
		return true
	}
	if p.m.defs[in.Result] != nil || p.labels[in.Result] != 0 {
		return p.refuse(codeTwice, "%%%d is defined before", in.Result)
	}
	if in.Op != OpLabel {
		p.m.defs[in.Result] = in
	}
	return true
}

// place puts an instruction into its section, or refuses it there.
func (p *parser) place(in *Inst, info *OpInfo) bool {
	s := info.section
	if s == sectionGlobalOrBody {
		if s = sectionGlobals; p.fn != nil {
			s = sectionBody
		} else if in.Op == OpExtInst && p.m.IsGLSL(in.Arg(0)) {
			return p.refuse(codePlace, "an instruction of GLSL.std.450 outside of a block")
		}
	}

	switch {
	case s == sectionGlobals && in.Op == OpExtInst && p.section == sectionFunctions && p.m.nonSemantic(in.Arg(0)):
		return true // after the functions, it says something about them
	case s == sectionBody:
		return p.inBlock(in)
	case s != sectionFunctions && p.fn != nil:
		return p.refuse(codePlace, "inside of a function")
	case !p.enter(s):
		return false
	}

	switch {
	case s == sectionFunctions:
		return p.inFunction(in)
	case s == sectionImports:
		if text, _ := Text(in.Args); text == debugInfo {
			p.debug = in.Result
		}
	case s == sectionMemoryModel:
		if p.m.MemoryModel.Op != 0 {
			return p.refuse(codeMemoryModel, "a second OpMemoryModel")
		}
		p.m.MemoryModel = *in
	}

	return true
}

// enter moves on to section s; the current instruction is its first.
func (p *parser) enter(s section) bool {
	if s < p.section {
		return p.refuse(codeOrder, "it belongs to %s, and comes after %s began", s, p.section)
	}
	first := len(p.insts)
	if p.op != OpLine && p.op != OpNoLine {
		first-- // it is there already
	}
	for p.section < s {
		p.section++
		p.starts[p.section] = first
	}
	return true
}

func (p *parser) finish() bool {
	if p.fn != nil {
		return p.refuse(codeFunctionEnd, "the module ends inside of function %%%d", p.fn.ID())
	}

	m := p.m
	if m.MemoryModel.Op == 0 {
		p.op, p.off = OpMemoryModel, 4*headerWords
		return p.refuse(codeMemoryModel, "there is none in the module")
	}

	for s := p.section + 1; int(s) < len(p.starts); s++ {
		p.starts[s] = len(p.insts)
	}

	part := func(from, to section) []Inst { return p.insts[p.starts[from]:p.starts[to]:p.starts[to]] }
	m.Capabilities = part(sectionCapabilities, sectionExtensions)
	m.Extensions = part(sectionExtensions, sectionImports)
	m.Imports = part(sectionImports, sectionMemoryModel)
	m.EntryPoints = part(sectionEntryPoints, sectionModes)
	m.Modes = part(sectionModes, sectionSources)
	m.Debug = part(sectionSources, sectionAnnotations)
	m.Annotations = part(sectionAnnotations, sectionGlobals)
	m.Globals = part(sectionGlobals, sectionFunctions)
	m.insts = p.insts
	return p.expandGroups()
}
