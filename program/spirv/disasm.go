package spirv

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Disassemble writes the module as text, an instruction a line, in the form of
// Khronos's spirv-dis and with friendly names for ids:
//
//	%sum = OpFAdd %float %a %b
//
// Strings are quoted and escaped as in Go, so that no contents of a module can
// garble a terminal. note, if not nil, may add a comment to an instruction; it is
// called once for each except OpLine and OpNoLine, in order. The output is in
// proportion to the module: long names are cut.
func (m *Module) Disassemble(w io.Writer, note func(*Inst) string) error {
	d := printer{m: m, out: bufio.NewWriter(w), names: friendlyNames(m)}
	d.header()
	next := 0
	for at := headerWords; at < len(m.Words); at += int(m.Words[at] >> 16) {
		if next == len(m.insts) || m.insts[next].Off != uint32(4*at) {
			op, n := Opcode(m.Words[at]), int(m.Words[at]>>16)
			d.inst(&Inst{Op: op, Args: m.Words[at+1 : at+n]}, "")
			continue
		}
		in := &m.insts[next]
		next++
		text := ""
		if note != nil {
			text = note(in)
		}
		d.inst(in, text)
	}

	return d.out.Flush()
}

// printer writes instructions. Parse has checked their shape.
type printer struct {
	m     *Module
	out   *bufio.Writer
	names names
}

func (d *printer) header() {
	m := d.m
	fmt.Fprintf(d.out, "; SPIR-V\n; Version: %d.%d\n; Generator: %#x\n; Bound: %d\n; Schema: 0\n",
		m.Version>>16&0xff, m.Version>>8&0xff, m.Generator, m.Bound)
}

// resultWidth is the column in which "=" ends, unless a name is longer.
const resultWidth = 14

func (d *printer) inst(in *Inst, note string) {
	info := in.Op.Info()
	name := ""
	if in.Result != 0 {
		name = d.names.of(in.Result) + " ="
	}
	fmt.Fprintf(d.out, "%*s %s", resultWidth, name, in.Op)
	if in.Type != 0 {
		d.id(uint32(in.Type))
	}
	d.list(info.Operands[info.results:], in.Args, in)
	if note != "" {
		d.out.WriteString("  ; ")
		d.out.WriteString(strings.ReplaceAll(note, "\n", "; "))
	}
	d.out.WriteByte('\n')
}

func (d *printer) id(word uint32) {
	d.out.WriteByte(' ')
	d.out.WriteString(d.names.of(ID(word)))
}

func (d *printer) number(word uint32) {
	d.out.WriteByte(' ')
	d.out.WriteString(strconv.FormatUint(uint64(word), 10))
}

// list writes args as operands, and returns the remaining ones.
func (d *printer) list(operands []Operand, args []uint32, in *Inst) []uint32 {
	for i := range operands {
		for len(args) > 0 {
			args = d.operand(operands[i].Kind, args, in)
			if !operands[i].Variadic {
				break
			}
		}
	}
	return args
}

// operand writes the first of args, and returns the rest.
func (d *printer) operand(kind OperandKind, args []uint32, in *Inst) []uint32 {
	n := 1
	switch kind {
	case KindIdRef, KindIdScope, KindIdMemorySemantics, KindIdResultType, KindIdResult:
		d.id(args[0])

	case KindLiteralInteger:
		d.number(args[0])
	case KindLiteralExtInstInteger:
		if d.m.IsGLSL(in.Arg(0)) {
			d.out.WriteString(" " + GLSL(args[0]).String())
		} else {
			d.number(args[0])
		}

	case KindLiteralString:
		var text string
		text, n = Text(args)
		d.out.WriteString(" " + strconv.Quote(text))

	case KindLiteralContextDependentNumber:
		n = len(args)
		d.out.WriteString(" " + d.m.literal(in.Type, args))

	case KindLiteralSpecConstantOpInteger:
		op := Opcode(args[0])
		info := op.Info()
		d.out.WriteString(" " + strings.TrimPrefix(op.String(), "Op"))
		return d.list(info.Operands[info.results:], args[1:], in)

	case KindPairLiteralIntegerIdRef:
		n = 2
		t := d.m.typeOf(in.Arg(0))
		if w := d.m.Def(t); w != nil && w.Args[0] == 64 {
			n = 3
		}
		d.out.WriteString(" " + d.m.literal(t, args[:n-1]))
		d.id(args[n-1])

	case KindPairIdRefLiteralInteger:
		n = 2
		d.id(args[0])
		d.number(args[1])

	case KindPairIdRefIdRef:
		n = 2
		d.id(args[0])
		d.id(args[1])

	default:
		return d.enumerants(kind, args, in)
	}

	return args[n:]
}

func (d *printer) enumerants(kind OperandKind, args []uint32, in *Inst) []uint32 {
	v := args[0]
	d.out.WriteString(" " + kind.text(v))
	args = args[1:]
	info := kind.info()
	if e := info.find(v); e != nil {
		return d.params(e, args, in)
	}
	for ; v != 0; v &= v - 1 {
		if e := info.find(v & -v); e != nil {
			args = d.params(e, args, in)
		}
	}
	return args
}

func (d *printer) params(e *enumerant, args []uint32, in *Inst) []uint32 {
	if len(e.params) == 0 {
		return args
	}
	return d.list(e.params, args, in)
}
