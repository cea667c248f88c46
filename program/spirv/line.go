package spirv

// setLine is OpLine and OpNoLine. They come with the globals and after.
func (p *parser) setLine(info *OpInfo, args []uint32) bool {
	if p.fn == nil && !p.enter(max(p.section, sectionGlobals)) {
		return false
	}
	if p.list(info.Operands, args, 0, nil, true) < 0 {
		return false
	}
	p.line = Line{}
	if p.op == OpLine {
		file := ID(args[0])
		if d := p.m.defs[file]; d == nil || d.Op != OpString {
			return p.refuse(codeFile, "%%%d is not an OpString", file)
		}
		p.line = Line{File: file, Line: args[1], Col: args[2]}
	}
	return true
}

// Instructions of NonSemantic.Shader.DebugInfo.100, by which some compilers record
// lines.
const (
	debugInfo   = "NonSemantic.Shader.DebugInfo.100"
	debugSource = 35
	debugLine   = 103
	debugNoLine = 104
)

// debugInst is an extended instruction in a block, of a set other than
// GLSL.std.450. It means nothing, so one without a line is no fault.
func (p *parser) debugInst(in *Inst) {
	if in.Arg(0) != p.debug {
		return
	}
	switch in.Args[1] {
	case debugNoLine:
		p.line = Line{}
	case debugLine: // source, first and last line, first and last column
		p.line = Line{}
		source := p.m.Def(in.Arg(2))
		if source == nil || source.Op != OpExtInst || source.Arg(0) != p.debug || source.Args[1] != debugSource {
			return
		}
		if file := p.m.Def(source.Arg(2)); file != nil && file.Op == OpString {
			p.line = Line{File: file.Result, Line: p.constant(in.Arg(3)), Col: p.constant(in.Arg(5))}
		}
	}
}

// constant is the low word of an OpConstant; 0 if id is none.
func (p *parser) constant(id ID) uint32 {
	if d := p.m.Def(id); d != nil && d.Op == OpConstant {
		return d.Args[0]
	}
	return 0
}
