package kernelgen

import (
	"fmt"
	"regexp"
	"strings"
)

// OpenCL is a kernel in OpenCL C 1.2, for engines without Vulkan's SPIR-V.
//
// The tree is printed with the meaning of GLSL: functions are overloaded where
// OpenCL C lacks one or differs, sums of signed integers wrap, arrays are structs
// (they are values in GLSL), vectors of bools are those of chars that are 0 or 1,
// and global variables and buffers are in a struct that all functions get.
// Specialisation constants and the workgroup are literals.
type OpenCL struct {
	Source string
	// Bindings are the kernel's, in OpenCL C's layout.
	Bindings [][]byte
	s0       *typ
	kernel   *Kernel
}

// OpenCL is the kernel in OpenCL C; false if it uses features that OpenCL C lacks.
func (k *Kernel) OpenCL() (*OpenCL, bool) {
	if k.Options.Subgroup || k.Options.Shuffle {
		return nil, false
	}
	c := &OpenCL{kernel: k, s0: k.types[0]}
	c.Bindings = append(c.Bindings, k.Bindings...)
	for _, i := range structBindings {
		c.Bindings[i] = repack(c.s0, k.Bindings[i], nil, 3, 4)
	}
	c.Source = k.openCLSource()
	return c, true
}

// structBindings are the bindings with structs as elements.
var structBindings = []int{5, 6}

// Back converts the bindings after a launch to the layout of the kernel.
func (c *OpenCL) Back(after [][]byte) [][]byte {
	out := append([][]byte{}, after...)
	for _, i := range structBindings {
		out[i] = repack(c.s0, after[i], c.kernel.Bindings[i], 4, 3)
	}
	return out
}

// repack copies elements of type t between layouts, which differ in the size of
// vectors of three. The bytes between the values come from below.
func repack(t *typ, b, below []byte, from, to int) []byte {
	stride := func(three int) int {
		size, align := t.layoutIf(three)
		return roundUp(size, align)
	}
	n := len(b) / stride(from)
	out := make([]byte, n*stride(to))
	copy(out, below)
	for i := range n {
		t.repack(b[i*stride(from):], out[i*stride(to):], from, to)
	}
	return out
}

func (t *typ) repack(b, out []byte, from, to int) {
	switch t.kind {
	case kindArray:
		sf, af := t.elem.layoutIf(from)
		st, at := t.elem.layoutIf(to)
		for i := range t.length {
			t.elem.repack(b[i*roundUp(sf, af):], out[i*roundUp(st, at):], from, to)
		}

	case kindStruct:
		x, y := 0, 0
		for _, f := range t.fields {
			sf, af := f.layoutIf(from)
			st, at := f.layoutIf(to)
			x, y = roundUp(x, af), roundUp(y, at)
			f.repack(b[x:], out[y:], from, to)
			x, y = x+sf, y+st
		}

	default:
		size, _ := t.layout()
		copy(out[:size], b)
	}
}

// wrapping is the form of an expression in which signed integers wrap, which C does
// not guarantee.
func wrapping(e *expr) string {
	if e.t.kind == kindI32 || e.t.kind == kindI64 {
		switch e.form {
		case "($0 + $1)":
			return "iadd($0, $1)"
		case "($0 - $1)":
			return "isub($0, $1)"
		case "($0 * $1)":
			return "imul($0, $1)"
		case "(-$0)":
			return "ineg($0)"
		}
	}
	return e.form
}

func wrappingAssignment(s *stmt) string {
	if len(s.args) > 0 && s.args[0].t.kind == kindI32 {
		switch s.form {
		case "$0 += $1;":
			return "$0 = iadd($0, $1);"
		case "$0 -= $1;":
			return "$0 = isub($0, $1);"
		}
	}
	return s.form
}

// cName is a type's name in OpenCL C.
func (t *typ) cName() string {
	switch {
	case t.kind == kindStruct:
		return t.name
	case t.kind == kindArray:
		return fmt.Sprintf("%s_%d", t.elem.name, t.length)
	}
	name := [...]string{"bool", "uint", "int", "float", "ulong", "long", "double"}[t.kind]
	if t.n == 1 {
		return name
	}
	if t.kind == kindBool {
		name = "char"
	}
	return fmt.Sprintf("%s%d", name, t.n)
}

var tableDecl = regexp.MustCompile(`^const uint (\w+)\[8\] = uint\[8\]\((.*)\);$`)

// openCLSource puts the parts together.
func (k *Kernel) openCLSource() string {
	var head, locals, fields, sets strings.Builder
	head.WriteString(openCLHelpers)
	k.declareTypes(&head)
	k.declareConstants(&head)
	var functions block
	t := newTranslator()
	for _, s := range k.shared {
		fmt.Fprintf(&locals, "\t__local %s %s[128];\n", s.t.cName(), s.array)
		fmt.Fprintf(&fields, "\t__local %s *%s;\n", s.t.cName(), s.array)
		fmt.Fprintf(&sets, "\tctx.%s = %[1]s;\n", s.array)
		t.context[s.array] = true
	}

	for _, s := range k.decls.stmts {
		if strings.HasPrefix(s.form, "shared ") {
			continue
		}
		if table := tableDecl.FindStringSubmatch(s.form); table != nil {
			fmt.Fprintf(&head, "__constant uint_8 %s = {{%s}};\n", table[1], table[2])
			continue
		}
		functions.add(s)
	}

	var params []string
	for i, p := range openCLParams {
		if k.Bindings[i] == nil {
			continue
		}
		params = append(params, fmt.Sprintf("__global %s *b%d", p.t, i))
		for _, f := range p.fields {
			fmt.Fprintf(&fields, "\t__global %s *%s;\n", f.t, f.name)
			fmt.Fprintf(&sets, "\tctx.%s = (__global %s *)((__global uchar *)b%d + %d);\n", f.name, f.t, i, f.at)
		}
	}

	fmt.Fprintf(&head, "typedef struct {\n%s%s} context;\n", openCLContext, fields.String())
	text := func(b *block, indent string) string {
		w := printer{openCL: true}
		w.block(b, indent)
		return t.translate(openCLNames.Replace(w.String()))
	}

	b := k.Block
	return head.String() + text(&functions, "") +
		fmt.Sprintf("__kernel __attribute__((reqd_work_group_size(%d, %d, %d)))\nvoid main_(%s, __constant Push *b16) {\n", b[0], b[1], b[2], strings.Join(params, ", ")) +
		locals.String() + openCLPrologue + sets.String() + openCLStart + text(k.main, "\t") + "}\n"
}

// declareTypes declares structs and arrays, in the order of their use, and
// functions that make them.
func (k *Kernel) declareTypes(w *strings.Builder) {
	done := map[string]bool{}
	var declare func(t *typ)
	declare = func(t *typ) {
		if t.kind < kindStruct || done[t.cName()] {
			return
		}

		done[t.cName()] = true
		members, params, sets := "", []string{}, ""
		if t.kind == kindArray {
			declare(t.elem)
			members = fmt.Sprintf(" %s a[%d];", t.elem.cName(), t.length)
			for i := range t.length {
				params = append(params, fmt.Sprintf("%s p%d", t.elem.cName(), i))
				sets += fmt.Sprintf(" r.a[%d] = p%[1]d;", i)
			}
		}

		for i, f := range t.fields {
			declare(f)
			members += fmt.Sprintf(" %s %s;", f.cName(), fieldName(i))
			params = append(params, fmt.Sprintf("%s p%d", f.cName(), i))
			sets += fmt.Sprintf(" r.f%d = p%[1]d;", i)
		}

		fmt.Fprintf(w, "typedef struct {%s } %s;\n", members, t.cName())
		fmt.Fprintf(w, "%s mk_%[1]s(%[2]s) { %[1]s r;%[3]s return r; }\n", t.cName(), strings.Join(params, ", "), sets)
	}

	for _, n := range []int{4, 8} {
		declare(&typ{kind: kindArray, elem: uintT, length: n})
	}

	for _, t := range k.types {
		declare(t)
	}

	w.WriteString("typedef struct { uint pu; int pi; float pf; uint2 pv; uint_4 pa; float3 pw; } Push;\n")
}

// declareConstants defines the specialisation constants, the workgroup and the
// lengths of buffers.
func (k *Kernel) declareConstants(w *strings.Builder) {
	c := map[uint32]uint32{4: 3, 5: 0xFFFFFFFE, 6: 0x3F400000, 7: 1}
	for _, set := range k.Constants {
		c[set.ID] = set.Value
	}
	size, align := k.types[0].layout()
	fmt.Fprintf(w, "#define sc_u %du\n#define sc_i ((int)%du)\n#define sc_f as_float(%du)\n#define sc_b ((bool)%d)\n#define sc_v (sc_u * 5u + 1u)\n",
		c[4], c[5], c[6], c[7])
	fmt.Fprintf(w, "#define N %du\n#define length_in_f %du\n#define length_in_s %du\n", k.Block[0]*k.Block[1]*k.Block[2], len(k.Bindings[1])/4, len(k.Bindings[5])/roundUp(size, align))
}
