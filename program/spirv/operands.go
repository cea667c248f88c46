package spirv

import "unicode/utf8"

// shape checks an instruction's words against the grammar, and fills in its
// result type, result and arguments.
func (p *parser) shape(in *Inst, info *OpInfo, args []uint32) bool {
	if n := int(info.results); n > 0 {
		if len(args) < n {
			return p.missing(info.Operands[len(args)].Kind)
		}

		if info.hasType {
			if !p.id(args[0]) {
				return false
			}
			in.Type = ID(args[0])
		}

		if info.hasResult {
			if !p.id(args[n-1]) {
				return false
			}
			in.Result = ID(args[n-1])
		}

		args = args[n:]
	}

	in.Args = args
	if p.list(info.Operands[info.results:], args, 0, in, true) < 0 {
		return false
	}
	if in.Op == OpExtInst {
		return p.extended(in)
	}

	return true
}

func (p *parser) missing(kind OperandKind) bool {
	return p.refuse(codeMissing, "its %s is missing", kind)
}

// id checks an id.
func (p *parser) id(word uint32) bool {
	if word-1 >= p.m.Bound-1 { // 0 wraps; Bound is at least 1
		return p.refuse(codeID, "id %d is not between 1 and %d", word, p.m.Bound-1)
	}
	return true
}

// list checks args[at:] against operands, and returns where they end; -1 if it
// refused. With all set nothing may come after them.
func (p *parser) list(operands []Operand, args []uint32, at int, in *Inst, all bool) int {
	for i := range operands {
		o := &operands[i]
		if at == len(args) {
			if o.Optional || o.Variadic {
				continue
			}
			p.missing(o.Kind)
			return -1
		}

		if at = p.operand(o.Kind, args, at, in); at < 0 {
			return -1
		}

		for o.Variadic && at < len(args) {
			if at = p.operand(o.Kind, args, at, in); at < 0 {
				return -1
			}
		}
	}

	if all && at != len(args) {
		p.refuse(codeSurplus, "%d words too many", len(args)-at)
		return -1
	}

	return at
}

// operand checks one operand at args[at:], which is not empty, and returns where
// it ends; -1 if it refused.
func (p *parser) operand(kind OperandKind, args []uint32, at int, in *Inst) int {
	ok, n := true, 1
	switch kind {
	case KindIdRef, KindIdScope, KindIdMemorySemantics, KindIdResultType, KindIdResult:
		ok = p.id(args[at])

	case KindLiteralInteger, KindLiteralExtInstInteger:
	case KindLiteralString:
		n, ok = p.str(args[at:])

	case KindLiteralContextDependentNumber:
		n, ok = p.number(in.Type)
		ok = ok && (len(args)-at >= n || p.missing(kind))

	case KindLiteralSpecConstantOpInteger:
		return p.specOp(args, at, in)
	case KindPairLiteralIntegerIdRef: // of OpSwitch only
		n, ok = p.number(p.m.typeOf(in.Arg(0)))
		n++
		ok = ok && (len(args)-at >= n || p.missing(kind)) && p.id(args[at+n-1])

	case KindPairIdRefLiteralInteger:
		n = 2
		ok = (len(args)-at >= n || p.missing(kind)) && p.id(args[at])

	case KindPairIdRefIdRef:
		n = 2
		ok = (len(args)-at >= n || p.missing(kind)) && p.id(args[at]) && p.id(args[at+1])

	default:
		return p.enumerants(kind, args, at, in)
	}

	if !ok {
		return -1
	}

	return at + n
}

// enumerants checks a value of an enumeration, and the operands that it brings.
func (p *parser) enumerants(kind OperandKind, args []uint32, at int, in *Inst) int {
	info, v := kind.info(), args[at]
	at++
	if e := info.find(v); e != nil {
		if len(e.params) == 0 {
			return at
		}
		return p.list(e.params, args, at, in, false)
	}

	if info.category == categoryBitEnum {
		rest := v
		for rest != 0 {
			bit := rest & -rest
			e := info.find(bit)
			if e == nil {
				break
			}
			rest &^= bit
			if at = p.list(e.params, args, at, in, false); at < 0 {
				return -1
			}
		}
		if rest == 0 {
			return at
		}
	}

	// A newer language of the source means nothing, and a newer capability is for the
	// verifier to refuse.
	if kind == KindSourceLanguage || kind == KindCapability {
		return at
	}

	p.refuse(codeEnumerant, "%#x is no %s", v, info.name)
	return -1
}

// str checks a string, and returns how many words it takes.
func (p *parser) str(words []uint32) (int, bool) {
	var high uint32
	for i, w := range words {
		if (w-0x01010101)&^w&0x80808080 == 0 { // no byte is 0
			high |= w
			continue
		}
		if (high|w)&0x80808080 != 0 && !p.freeText() {
			if text, _ := Text(words[:i+1]); !utf8.ValidString(text) {
				return 0, p.refuse(codeUTF8, "a string is not UTF-8")
			}
		}
		return i + 1, true
	}
	return 0, p.refuse(codeString, "a string does not end within the instruction")
}

// freeText reports whether strings of the current instruction are not names.
// glslang writes a source's bytes beyond ASCII as 0xff.
func (p *parser) freeText() bool {
	switch p.op {
	case OpSource, OpSourceContinued, OpString, OpModuleProcessed:
		return true
	}
	return false
}

// number is the number of words of a literal of type id.
func (p *parser) number(id ID) (int, bool) {
	w, ok := p.width(id)
	if !ok {
		return 0, p.refuse(codeNumber, "%%%d is not a number type of 8, 16, 32 or 64 bits that was declared before", id)
	}
	return (w + 31) / 32, true
}

// width is the bits of a number type. OpSwitch has no floats, which the verifier
// checks.
func (p *parser) width(id ID) (int, bool) {
	d := p.m.Def(id)
	if d == nil || d.Op != OpTypeInt && d.Op != OpTypeFloat {
		return 0, false
	}
	switch w := d.Args[0]; w {
	case 8, 16, 32, 64:
		return int(w), true
	}
	return 0, false
}

// typeOf is the type of id; 0 if it is not known yet.
func (m *Module) typeOf(id ID) ID {
	if d := m.Def(id); d != nil {
		return d.Type
	}
	return 0
}

// specOp checks the opcode in an OpSpecConstantOp, and its operands.
func (p *parser) specOp(args []uint32, at int, in *Inst) int {
	op := args[at]
	var info *OpInfo
	if op <= 0xffff {
		info = Opcode(op).Info()
	}
	if info == nil || info.section != sectionBody || !info.hasType || !info.hasResult || Opcode(op) == OpFunctionCall || Opcode(op) == OpPhi {
		p.refuse(codeSpecOp, "no constant comes of opcode %d", op)
		return -1
	}
	return p.list(info.Operands[info.results:], args, at+1, in, true)
}

// extended checks an OpExtInst: its set is imported, and if that is GLSL.std.450
// the instruction is there and has as many operands.
func (p *parser) extended(in *Inst) bool {
	set := p.m.Def(in.Arg(0))
	if set == nil || set.Op != OpExtInstImport {
		return p.refuse(codeExtInst, "%%%d is no imported set", in.Arg(0))
	}
	if !p.m.IsGLSL(in.Arg(0)) {
		return true
	}

	g := GLSL(in.Args[1])
	info := g.Info()
	if info == nil {
		return p.refuse(codeExtInst, "GLSL.std.450 has no instruction %d", uint32(g))
	}
	if got, want := len(in.Args)-2, len(info.Operands); got != want {
		return p.refuse(codeExtInst, "%s takes %d operands, not %d", g, want, got)
	}

	return true
}
