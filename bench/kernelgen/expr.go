package kernelgen

import (
	"fmt"
	"strings"
)

// op is a template of an expression and the types of its arguments, one letter
// each: s as the result, e a scalar of the result's kind, u a scalar uint, b a
// scalar bool; and with as many components as the result: U uint, I int, B bool, F
// float as stored (2^-10 to 2^12 or 0), L uint64_t, J int64_t. T in a form is the
// result's type.
type op struct{ form, args string }

// The operations by the kind of their result. Operations that are listed twice are
// drawn more often. There is no negation of unsigned integers: spirv-opt 2023.1
// makes x / -7 of -(x / 7), whatever the type.
var ops = [...][]op{
	kindU32: {
		{"($0 + $1)", "ss"}, {"($0 - $1)", "ss"}, {"($0 * $1)", "ss"}, {"($0 + $1)", "ss"}, {"($0 ^ $1)", "ss"},
		{"($0 & $1)", "ss"}, {"($0 | $1)", "ss"}, {"(~$0)", "s"},
		{"($0 << ($1 & 31u))", "ss"}, {"($0 >> ($1 & 31u))", "ss"}, {"($0 >> ($1 & 31u))", "su"},
		{"($0 / ($1 | 1u))", "ss"}, {"($0 % ($1 | 1u))", "ss"}, {"($0 / 7u)", "s"}, {"($0 % 10u)", "s"},
		{"min($0, $1)", "ss"}, {"max($0, $1)", "ss"}, {"clamp($0, $1 & 0xFFu, $2 | 0x100u)", "sss"},
		{"bitfieldReverse($0)", "s"}, {"T(bitCount($0))", "s"}, {"T(findMSB($0))", "s"}, {"T(findLSB($0))", "s"},
		{"bitfieldExtract($0, int($1 & 15u), int($2 & 15u))", "suu"},
		{"bitfieldInsert($0, $1, int($2 & 15u), int($3 % 17u))", "ssuu"},
		{"T($0)", "I"}, {"T(abs($0))", "F"}, {"floatBitsToUint(abs($0))", "F"}, {"T($0)", "B"},
	},
	kindI32: {
		{"($0 + $1)", "ss"}, {"($0 - $1)", "ss"}, {"($0 * $1)", "ss"}, {"($0 + $1)", "ss"}, {"($0 ^ $1)", "ss"},
		{"($0 & $1)", "ss"}, {"($0 | $1)", "ss"}, {"(~$0)", "s"}, {"(-$0)", "s"},
		{"($0 << ($1 & 31))", "ss"}, {"($0 >> ($1 & 31))", "ss"}, {"($0 >> 3)", "s"},
		{"($0 / (($1 & 0x7FFF) | 1))", "ss"}, {"(($0 & 0x7FFFFFFF) % (($1 & 0x7FFF) | 1))", "ss"}, {"($0 / -5)", "s"},
		{"min($0, $1)", "ss"}, {"max($0, $1)", "ss"}, {"clamp($0, $1 & 0xFF, $2 & 0xFF | 0x100)", "sss"},
		{"abs($0)", "s"}, {"sign($0)", "s"}, {"bitCount($0)", "s"}, {"findMSB($0)", "s"}, {"findLSB($0)", "U"},
		{"bitfieldReverse($0)", "s"}, {"bitfieldExtract($0, int($1 & 15u), int($2 & 15u))", "suu"},
		{"bitfieldInsert($0, $1, int($2 & 15u), int($3 & 15u))", "ssuu"},
		{"T($0)", "U"}, {"T($0)", "F"}, {"T($0)", "B"},
	},
	kindF32: {
		{"($0 + $1)", "ss"}, {"($0 - $1)", "ss"}, {"($0 * $1)", "ss"}, {"($0 * $1 + $2)", "sss"}, {"($0 - $1 * $2)", "FFF"},
		{"min($0, $1)", "ss"}, {"max($0, $1)", "ss"}, {"abs($0)", "s"}, {"(-$0)", "s"}, {"clamp($0, -8.0, 8.0)", "s"},
		{"floor($0)", "s"}, {"ceil($0)", "s"}, {"trunc($0)", "s"}, {"roundEven($0)", "s"}, {"fract($0)", "F"},
		{"sign($0)", "s"}, {"step($0, $1)", "ss"}, {"(T($0 & 0xFFFF) * 0.0625)", "I"}, {"(T($0 >> 8u) * 0.000244140625)", "U"},
		{"uintBitsToFloat($0 & 0x7FFFFFu | 0x3F800000u)", "U"}, {"intBitsToFloat($0 & 0x7FFFFF | 0x40000000)", "I"},
		{"T($0)", "B"}, {"ldexp($0, T_INT($1 & 7u) - 3)", "FU"},
	},
	kindU64: {
		{"($0 + $1)", "ss"}, {"($0 - $1)", "ss"}, {"($0 * $1)", "ss"}, {"($0 ^ $1)", "ss"}, {"($0 & $1)", "ss"}, {"($0 | $1)", "ss"},
		{"(~$0)", "s"}, {"($0 << ($1 & 63u))", "su"}, {"($0 >> ($1 & 63u))", "su"},
		{"($0 / ($1 | 1ul))", "ss"}, {"($0 % ($1 | 1ul))", "ss"}, {"min($0, $1)", "ss"}, {"max($0, $1)", "ss"},
		{"T($0)", "U"}, {"T($0)", "J"}, {"T($0)", "I"}, {"T(abs($0))", "F"}, {"T($0)", "B"},
	},
	kindI64: {
		{"($0 + $1)", "ss"}, {"($0 - $1)", "ss"}, {"($0 * $1)", "ss"}, {"($0 ^ $1)", "ss"}, {"($0 & $1)", "ss"}, {"($0 | $1)", "ss"},
		{"(~$0)", "s"}, {"(-$0)", "s"}, {"($0 << ($1 & 63u))", "su"}, {"($0 >> ($1 & 63u))", "su"},
		{"($0 / (($1 & 0x7FFFl) | 1l))", "ss"}, {"(($0 & 0x7FFFFFFFFFFl) % (($1 & 0x7FFFl) | 1l))", "ss"},
		{"min($0, $1)", "ss"}, {"max($0, $1)", "ss"}, {"abs($0)", "s"}, {"sign($0)", "s"},
		{"T($0)", "U"}, {"T($0)", "L"}, {"T($0)", "I"}, {"T($0)", "F"},
	},
	kindF64: {
		{"($0 + $1)", "ss"}, {"($0 - $1)", "ss"}, {"($0 * $1)", "ss"}, {"($0 * $1 + $2)", "sss"},
		{"min($0, $1)", "ss"}, {"max($0, $1)", "ss"}, {"abs($0)", "s"}, {"(-$0)", "s"},
		{"floor($0)", "s"}, {"ceil($0)", "s"}, {"trunc($0)", "s"},
		{"T($0)", "F"}, {"T($0 & 0xFFFF)", "I"}, {"(T($0) * 0.00000095367431640625lf)", "U"},
	},
}

// Operations that only scalars, or only vectors, have.
var scalarOps = map[kind][]op{
	kindU32: {
		{"($0 ? $1 : $2)", "bss"}, {"($0 ? $1 : $2)", "bss"},
	},
	kindI32: {{"($0 ? $1 : $2)", "bss"}, {"($0 ? $1 : $2)", "bss"}},
	kindF32: {{"($0 ? $1 : $2)", "bss"}},
	kindU64: {{"($0 ? $1 : $2)", "bss"}, {"packUint2x32(uvec2($0, $1))", "UU"}},
	kindI64: {{"($0 ? $1 : $2)", "bss"}, {"int64_t(packUint2x32(uvec2($0, $1)))", "UU"}},
	kindF64: {{"($0 ? $1 : $2)", "bss"}, {"uint64BitsToDouble($0 & 0xFFFFFFFFFFFFFul | 0x3FF0000000000000ul)", "L"}},
	kindBool: {
		{"($0 < $1)", "UU"}, {"($0 >= $1)", "UU"}, {"($0 == $1)", "UU"}, {"(($0 & 1u) != 0u)", "U"}, {"(($0 & 3u) == 1u)", "U"},
		{"($0 < $1)", "II"}, {"($0 <= $1)", "II"}, {"($0 > 0)", "I"}, {"($0 != $1)", "II"},
		{"($0 < $1)", "FF"}, {"($0 > $1)", "FF"}, {"($0 <= $1)", "FF"}, {"($0 == $1)", "FF"}, {"($0 != $1)", "FF"},
		{"($0 && $1)", "ss"}, {"($0 || $1)", "ss"}, {"($0 ^^ $1)", "ss"}, {"(!$0)", "s"}, {"($0 ? $1 : $2)", "sss"},
		{"isnan($0)", "F"}, {"isinf($0)", "F"},
	},
}

var vectorOps = map[kind][]op{
	kindU32:  {{"mix($0, $1, $2)", "ssB"}},
	kindI32:  {{"mix($0, $1, $2)", "ssB"}},
	kindF32:  {{"mix($0, $1, $2)", "ssB"}, {"($0 * $1)", "se"}, {"($0 + $1)", "es"}, {"max($0, $1)", "se"}},
	kindBool: {{"lessThan($0, $1)", "UU"}, {"greaterThanEqual($0, $1)", "II"}, {"equal($0, $1)", "FF"}, {"notEqual($0, $1)", "UU"}, {"not($0)", "s"}, {"lessThanEqual($0, $1)", "FF"}},
}

// expr is an expression of a type, with a bounded depth.
func (g *gen) expr(t *typ, depth int, uniform bool) *expr {
	// Indices and arguments have a depth of their own; this bounds the whole.
	g.nest++
	defer func() { g.nest-- }()

	if g.nest > 6 {
		return g.literal(t)
	}
	if t.kind == kindF32 || t.kind == kindF64 {
		depth = min(depth, 2) // few enough factors to stay far from the ends of the range
	}
	if depth <= 0 || g.chance(6) {
		return g.leaf(t, uniform)
	}

	switch t.kind {
	case kindStruct, kindArray:
		if p := g.place(t, uniform, false); p != nil && g.chance(2) {
			return p
		}
		return g.compose(t, depth, uniform)
	}

	if t.n > 1 && g.chance(5) {
		return g.compose(t, depth, uniform)
	}
	if t.n == 1 && t.kind == kindBool && g.chance(8) {
		b := vectors[kindBool][1+g.IntN(3)]
		return &expr{t, pick(g, []string{"any($0)", "all($0)"}), []*expr{g.expr(b, depth-1, uniform)}}
	}
	if c := g.call(t, uniform); c != nil && g.chance(6) {
		return c
	}

	// The slices above are shared: no append to them.
	list := ops[min(int(t.kind), len(ops)-1)]
	if t.kind == kindBool {
		list = nil
	}

	more := scalarOps[t.kind]
	if t.n > 1 {
		more = vectorOps[t.kind]
	}

	n := g.IntN(len(list) + len(more))
	var o op
	if n < len(list) {
		o = list[n]
	} else {
		o = more[n-len(list)]
	}

	return o.instance(t, func(at *typ, levels int) *expr { return g.expr(at, depth-levels, uniform) })
}

// instance is an expression of the operation with a result of type t; arg makes an
// argument, this many levels below it.
func (o op) instance(t *typ, arg func(t *typ, levels int) *expr) *expr {
	form := strings.ReplaceAll(o.form, "T_INT", vectors[kindI32][t.n-1].name)
	e := &expr{t: t, form: strings.ReplaceAll(form, "T(", t.name+"(")}
	for _, a := range o.args {
		at, levels := t, 1
		switch a {
		case 'e':
			at = t.elem

		case 'u':
			at = uintT
		case 'b':
			at = boolT

		case 'U':
			at = t.with(kindU32)
		case 'I':
			at = t.with(kindI32)

		case 'B':
			at = t.with(kindBool)
		case 'F':
			at, levels = t.with(kindF32), toLeaf

		case 'L':
			at = t.with(kindU64)
		case 'J':
			at = t.with(kindI64)
		}

		e.args = append(e.args, arg(at, levels))
	}

	return e
}

// toLeaf is more levels than any expression has.
const toLeaf = 100

// compose makes a value of a type of several parts.
func (g *gen) compose(t *typ, depth int, uniform bool) *expr {
	parts := t.fields
	switch {
	case t.kind == kindArray:
		for range t.length {
			parts = append(parts, t.elem)
		}

	case t.kind == kindStruct:
	case t.n == 4 && g.chance(2):
		parts = []*typ{vectors[t.kind][1], vectors[t.kind][1]}

	case t.n >= 3 && g.chance(2):
		parts = []*typ{vectors[t.kind][t.n-2], t.elem}
	case g.chance(2):
		from := vectors[t.kind][1+g.IntN(3)]
		swizzle := "$0."
		for range t.n {
			swizzle += "xyzw"[g.IntN(from.n):][:1]
		}
		return &expr{t, swizzle, []*expr{g.expr(from, depth-1, uniform)}}

	default:
		for range t.n {
			parts = append(parts, t.elem)
		}
	}

	e := &expr{t: t, form: t.name + "("}
	for i, p := range parts {
		if i > 0 {
			e.form += ", "
		}
		e.form += fmt.Sprintf("$%d", i)
		d := depth - 1
		if t.kind >= kindStruct { // stored as it is, so floats are as stored
			d = min(d, 1)
			if p.kind == kindF32 || p.kind == kindF64 {
				d = 0
			}
		}
		e.args = append(e.args, g.expr(p, d, uniform))
	}

	e.form += ")"
	return e
}

// leaf is a variable, an input or a constant; floats are as stored.
func (g *gen) leaf(t *typ, uniform bool) *expr {
	if t.kind < kindStruct && t.kind != kindBool && g.chance(4) {
		if e := g.input(t, uniform); e != nil {
			return e
		}
	}

	if g.chance(5) && t.scalars() < 5 {
		return g.literal(t)
	}
	if p := g.place(t, uniform, false); p != nil {
		return p
	}
	if t.scalars() > 9 || g.chance(2) && t.kind < kindStruct {
		return g.literal(t)
	}
	if t.kind < kindStruct && t.n == 1 {
		return g.literal(t)
	}

	return g.compose(t, 1, uniform)
}

// input reads a read-only buffer.
func (g *gen) input(t *typ, uniform bool) *expr {
	var forms []string
	switch t {
	case uintT:
		forms = []string{"in_u[$0 & 255u]", "in_u[$0 & 255u]", "uint(in_f.length())", "uint(in_s.length())"}
		if !uniform {
			forms = append(forms, "in_u[gid & 255u]", "gl_LocalInvocationID.x", "gl_GlobalInvocationID.y", "gl_GlobalInvocationID.x", "lid", "gid")
			if g.o.Subgroup {
				forms = append(forms, "gl_SubgroupInvocationID", "gl_SubgroupID", "gl_SubgroupSize")
			}
		}
		if g.o.Narrow {
			forms = append(forms, "uint(in_b[$0 & 255u])", "uint(in_w[$0 & 127u])")
		}

	case intT:
		forms = []string{"int(in_u[$0 & 255u])", "in_i[$0 & 63u].y", "in_i[$0 & 63u].w"}
		if g.o.Narrow {
			forms = append(forms, "int(in_w[$0 & 127u])", "int(in_b[$0 & 255u])")
		}

	case fltT:
		forms = []string{"in_f[$0 & 255u]", "in_f[$0 & 255u]"}
		if !uniform {
			forms = append(forms, "in_f[gid & 255u]", "in_f[lid & 255u]")
		}
		if g.o.Narrow {
			forms = append(forms, "float(in_h[$0 & 127u])")
		}

	case vectors[kindI32][3]:
		forms = []string{"in_i[$0 & 63u]"}
	case vectors[kindU32][3]:
		forms = []string{"uvec4(in_i[$0 & 63u])"}

	case vectors[kindU64][0]:
		forms = []string{"in_l[$0 & 63u]"}
	case vectors[kindI64][0]:
		forms = []string{"int64_t(in_l[$0 & 63u])"}

	default:
		return nil
	}

	e := &expr{t: t, form: pick(g, forms)}
	if strings.Contains(e.form, "$0") {
		e.args = []*expr{g.expr(uintT, g.IntN(2), uniform)}
	}

	return e
}

// call calls a pure function with only in parameters.
func (g *gen) call(t *typ, uniform bool) *expr {
	var fit []function
	for _, f := range g.funcs {
		if f.result == t && f.pure && !f.uniform && len(f.params) < 10 && !hasOut(f) {
			fit = append(fit, f)
		}
	}

	if len(fit) == 0 {
		return nil
	}

	f := pick(g, fit)
	e := &expr{t: t, form: f.name + "("}
	for i, p := range f.params {
		if i > 0 {
			e.form += ", "
		}
		e.form += fmt.Sprintf("$%d", i)
		e.args = append(e.args, g.stored(p.t, 0, uniform))
	}

	e.form += ")"
	return e
}

func hasOut(f function) bool {
	for _, p := range f.params {
		if p.how != "" {
			return true
		}
	}
	return false
}

// stored is an expression with a value that may be kept in a variable: floats are
// brought back into their range.
func (g *gen) stored(t *typ, depth int, uniform bool) *expr {
	e := g.expr(t, depth, uniform)
	if t.kind == kindF32 || t.kind == kindF64 {
		return &expr{t, "nf($0)", []*expr{e}}
	}
	return e
}
