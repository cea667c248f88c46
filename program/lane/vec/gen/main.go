// Command gen writes the loops of package vec in Go (zbinary.go, zbinaryl.go,
// zcompare.go, zcomparel.go, zunary.go, zternary.go): one loop for each operation
// and each shape of its operands, and the tables by which they are found. Go does
// not inline a function that is passed as a value, so a loop that is fast must be
// written out.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"strings"
)

// op is one operation on lanes x, y, z. In its expression $T is the type of a
// lane, $S the signed integer and $F the float of its width, $W its bits.
type op struct {
	name, expr string
	core, glsl string // the instruction that it is; "Op" and "GLSL" left out
}

// Integers, and float operations that are functions in float.go, at both widths.
var binary = []op{
	{"iadd", "x + y", "IAdd", ""},
	{"isub", "x - y", "ISub", ""},
	{"imul", "x * y", "IMul", ""},
	{"udiv", "udiv$W(x, y)", "UDiv", ""},
	{"sdiv", "sdiv$W(x, y)", "SDiv", ""},
	{"umod", "umod$W(x, y)", "UMod", ""},
	{"srem", "srem$W(x, y)", "SRem", ""},
	{"smod", "smod$W(x, y)", "SMod", ""},
	{"shl", "x << (y & ($W - 1))", "ShiftLeftLogical", ""},
	{"shr", "x >> (y & ($W - 1))", "ShiftRightLogical", ""},
	{"sar", "$T($S(x) >> (y & ($W - 1)))", "ShiftRightArithmetic", ""},
	{"and", "x & y", "BitwiseAnd", ""},
	{"or", "x | y", "BitwiseOr", ""},
	{"xor", "x ^ y", "BitwiseXor", ""},
	{"fadd", "bits$W(float$W(x) + float$W(y))", "FAdd", ""},
	{"fsub", "bits$W(float$W(x) - float$W(y))", "FSub", ""},
	{"fmul", "bits$W(float$W(x) * float$W(y))", "FMul", ""},
	{"fdiv", "bits$W(float$W(x) / float$W(y))", "FDiv", ""},
	{"frem", "frem$W(x, y)", "FRem", ""},
	{"fmod", "fmod$W(x, y)", "FMod", ""},
	{"umin", "min(x, y)", "", "UMin"},
	{"umax", "max(x, y)", "", "UMax"},
	{"smin", "$T(min($S(x), $S(y)))", "", "SMin"},
	{"smax", "$T(max($S(x), $S(y)))", "", "SMax"},
	{"fmin", "fmin$W(x, y)", "", "FMin"},
	{"fmax", "fmax$W(x, y)", "", "FMax"},
	{"nmin", "nmin$W(x, y)", "", "NMin"},
	{"nmax", "nmax$W(x, y)", "", "NMax"},
	{"step", "step$W(x, y)", "", "Step"},
	{"highAdd", "carry$W(x, y)", "IAddCarry", ""},
	{"highSub", "borrow$W(x, y)", "ISubBorrow", ""},
	{"highUMul", "umulHigh$W(x, y)", "UMulExtended", ""},
	{"highSMul", "smulHigh$W(x, y)", "SMulExtended", ""},
}

// Only for 32-bit lanes.
var binary32 = []op{
	{"logicalEqual", "^(x ^ y)", "LogicalEqual", ""},
	{"fpow", "pow32(x, y)", "", "Pow"},
	{"fatan2", "atan2(x, y)", "", "Atan2"},
	{"fldexp", "ldexp32(x, y)", "", "Ldexp"},
	{"packHalf", "packHalf2x16(x, y)", "", "PackHalf2x16"},
	{"packSnorm2", "packSnorm2x16(x, y)", "", "PackSnorm2x16"},
	{"packUnorm2", "packUnorm2x16(x, y)", "", "PackUnorm2x16"},
}

var compare = []op{
	{"ieq", "x == y", "IEqual", ""},
	{"ine", "x != y", "INotEqual", ""},
	{"ugt", "x > y", "UGreaterThan", ""},
	{"sgt", "$S(x) > $S(y)", "SGreaterThan", ""},
	{"uge", "x >= y", "UGreaterThanEqual", ""},
	{"sge", "$S(x) >= $S(y)", "SGreaterThanEqual", ""},
	{"ult", "x < y", "ULessThan", ""},
	{"slt", "$S(x) < $S(y)", "SLessThan", ""},
	{"ule", "x <= y", "ULessThanEqual", ""},
	{"sle", "$S(x) <= $S(y)", "SLessThanEqual", ""},
	{"foeq", "float$W(x) == float$W(y)", "FOrdEqual", ""},
	{"fueq", "!(less$W(x, y) || less$W(y, x))", "FUnordEqual", ""},
	{"fone", "less$W(x, y) || less$W(y, x)", "FOrdNotEqual", ""},
	{"fune", "float$W(x) != float$W(y)", "FUnordNotEqual", ""},
	{"folt", "float$W(x) < float$W(y)", "FOrdLessThan", ""},
	{"fult", "!(float$W(x) >= float$W(y))", "FUnordLessThan", ""},
	{"fogt", "float$W(x) > float$W(y)", "FOrdGreaterThan", ""},
	{"fugt", "!(float$W(x) <= float$W(y))", "FUnordGreaterThan", ""},
	{"fole", "float$W(x) <= float$W(y)", "FOrdLessThanEqual", ""},
	{"fule", "!(float$W(x) > float$W(y))", "FUnordLessThanEqual", ""},
	{"foge", "float$W(x) >= float$W(y)", "FOrdGreaterThanEqual", ""},
	{"fuge", "!(float$W(x) < float$W(y))", "FUnordGreaterThanEqual", ""},
}

var unary = []op{
	{"not", "^x", "Not", ""},
	{"snegate", "-x", "SNegate", ""},
	{"fnegate", "x ^ 1<<($W-1)", "FNegate", ""},
	{"fabs", "x &^ (1 << ($W - 1))", "", "FAbs"},
	{"sabs", "$T(max($S(x), -$S(x)))", "", "SAbs"},
	{"ssign", "$T($S(x)>>($W-1)) | -x>>($W-1)", "", "SSign"},
	{"fsign", "fsign$W(x)", "", "FSign"},
	{"roundEven", "roundEven$W(x)", "", "RoundEven"},
	{"trunc", "trunc$W(x)", "", "Trunc"},
	{"floor", "floor$W(x)", "", "Floor"},
	{"ceil", "ceil$W(x)", "", "Ceil"},
	{"fract", "fract$W(x)", "", "Fract"},
	{"sqrt", "sqrt$W(x)", "", "Sqrt"},
	{"inverseSqrt", "inverseSqrt$W(x)", "", "InverseSqrt"},
}

var unary32 = []op{
	{"bitCount", "uint32(bits.OnesCount32(x))", "BitCount", ""},
	{"bitReverse", "bits.Reverse32(x)", "BitReverse", ""},
	{"isNan", "mask(float32(x) != float32(x))", "IsNan", ""},
	{"isInf", "mask(x<<1 == 0xFF<<24)", "IsInf", ""},
	{"fToS", "fToS32(x)", "ConvertFToS", ""},
	{"fToU", "fToU32(x)", "ConvertFToU", ""},
	{"sToF", "bits32(float32v(int32(x)))", "ConvertSToF", ""},
	{"uToF", "bits32(float32v(x))", "ConvertUToF", ""},
	{"radians", "bits32(float32(x) * (math.Pi / 180))", "", "Radians"},
	{"degrees", "bits32(float32(x) * (180 / math.Pi))", "", "Degrees"},
	{"sin", "sin(x)", "", "Sin"},
	{"cos", "cos(x)", "", "Cos"},
	{"tan", "tan(x)", "", "Tan"},
	{"asin", "asin(x)", "", "Asin"},
	{"acos", "acos(x)", "", "Acos"},
	{"atan", "atan(x)", "", "Atan"},
	{"sinh", "sinh(x)", "", "Sinh"},
	{"cosh", "cosh(x)", "", "Cosh"},
	{"tanh", "tanh(x)", "", "Tanh"},
	{"asinh", "asinh(x)", "", "Asinh"},
	{"acosh", "acosh(x)", "", "Acosh"},
	{"atanh", "atanh(x)", "", "Atanh"},
	{"exp", "exp(x)", "", "Exp"},
	{"log", "log(x)", "", "Log"},
	{"exp2", "exp2(x)", "", "Exp2"},
	{"log2", "log2(x)", "", "Log2"},
	{"findILsb", "findILsb(x)", "", "FindILsb"},
	{"findSMsb", "findUMsb(x ^ uint32(int32(x)>>31))", "", "FindSMsb"},
	{"findUMsb", "findUMsb(x)", "", "FindUMsb"},
}

var unary64 = []op{
	{"fToS", "fToS64(float64(x))", "ConvertFToS", ""},
	{"fToU", "fToU64(float64(x))", "ConvertFToU", ""},
	{"sToF", "bits64(float64v(int64(x)))", "ConvertSToF", ""},
	{"uToF", "bits64(float64v(x))", "ConvertUToF", ""},
}

var ternary = []op{
	{"fclamp", "fmin$W(fmax$W(x, y), z)", "", "FClamp"},
	{"nclamp", "nmin$W(nmax$W(x, y), z)", "", "NClamp"},
	{"uclamp", "min(max(x, y), z)", "", "UClamp"},
	{"sclamp", "$T(min(max($S(x), $S(y)), $S(z)))", "", "SClamp"},
	{"fmix", "fmix$W(x, y, z)", "", "FMix"},
	{"fsmoothStep", "smoothStep$W(x, y, z)", "", "SmoothStep"},
	{"ffma", "fma$W(x, y, z)", "", "Fma"},
}

var ternary32 = []op{
	{"bitFieldS", "bitFieldS(x, y, z)", "BitFieldSExtract", ""},
	{"bitFieldU", "bitFieldU(x, y, z)", "BitFieldUExtract", ""},
}

type width struct{ suffix, bits, typ, signed string }

var (
	w32 = width{"", "32", "uint32", "int32"}
	w64 = width{"L", "64", "uint64", "int64"}
)

func (w width) expr(e string) string {
	e = strings.NewReplacer("$T", w.typ, "$S", w.signed, "$W", w.bits).Replace(e)
	// float32(x) of a lane is its bits read as a float; float32v(x) is its value.
	for _, b := range []string{"32", "64"} {
		e = strings.ReplaceAll(e, "float"+b+"(", "math.Float"+b+"frombits(")
		e = strings.ReplaceAll(e, "float"+b+"v(", "float"+b+"(")
		e = strings.ReplaceAll(e, "bits"+b+"(", "math.Float"+b+"bits(")
	}
	return e
}

type file struct {
	bytes.Buffer
}

func (f *file) p(format string, args ...any) { fmt.Fprintf(f, format+"\n", args...) }

// source is the file, with its head.
func (f *file) source() []byte {
	body := f.String()
	var head bytes.Buffer
	head.WriteString("// Code generated by gen; DO NOT EDIT.\n\npackage vec\n\nimport (\n")
	if strings.Contains(body, "math.") {
		head.WriteString("\"math\"\n")
	}
	if strings.Contains(body, "\tbits.") || strings.Contains(body, "(bits.") || strings.Contains(body, " bits.") {
		head.WriteString("\"math/bits\"\n")
	}
	head.WriteString("\n\"capgpu/program/spirv\"\n)\n\n")
	src, err := format.Source(append(head.Bytes(), f.Bytes()...))
	if err != nil {
		log.Fatalf("%v\n%s", err, f.Bytes())
	}
	return src
}

// loop writes one loop. in are the operands in their order in expr: "a" is a slice,
// "s" the scalar, which is the last parameter.
func (f *file) loop(name, dstType, srcType, expr string, in ...string) {
	vars := []string{"x", "y", "z"}
	params, slices, loads, scalar := "", "", "", ""
	lens := "len(dst)"
	for i, p := range in {
		if p == "s" {
			scalar = ", s " + srcType
			expr = replaceVar(expr, vars[i], "s")
			continue
		}
		params += ", " + p + " []" + srcType
		lens += ", len(" + p + ")"
		slices += p + " = " + p + "[:len(dst)]\n"
		loads += vars[i] + " := " + p + "[i]\n"
	}

	f.p("func %s(dst []%s%s%s) {", name, dstType, params, scalar)
	f.p("dst = dst[:min(%s)]\n%sfor i := range dst {\n%sdst[i] = %s\n}\n}\n", lens, slices, loads, expr)
}

// replaceVar puts s for the identifier v in e.
func replaceVar(e, v, s string) string {
	var b strings.Builder
	word := func(c byte) bool { return c == '_' || c >= '0' && c <= '9' || c|32 >= 'a' && c|32 <= 'z' }
	for i := 0; i < len(e); i++ {
		if e[i] == v[0] && (i == 0 || !word(e[i-1]) && e[i-1] != '.') && (i+1 == len(e) || !word(e[i+1])) {
			b.WriteString(s)
			continue
		}
		b.WriteByte(e[i])
	}
	return b.String()
}

func (f *file) tables(prefix, typ string, ops []op, entry func(op) string) {
	f.p("var %s = map[spirv.Opcode]%s{", prefix, typ)
	for _, o := range ops {
		if o.core != "" && !strings.HasPrefix(o.name, "high") {
			f.p("spirv.Op%s: %s,", o.core, entry(o))
		}
	}
	f.p("}\n\nvar %sGLSL = map[spirv.GLSL]%s{", prefix, typ)
	for _, o := range ops {
		if o.glsl != "" {
			f.p("spirv.GLSL%s: %s,", o.glsl, entry(o))
		}
	}
	f.p("}\n")
}

func binaries(w width, ops []op) []byte {
	var f file
	for _, o := range ops {
		e := w.expr(o.expr)
		f.loop(o.name+w.suffix+"Go", w.typ, w.typ, e, "a", "b")
		f.loop(o.name+w.suffix+"VSGo", w.typ, w.typ, e, "a", "s")
		f.loop(o.name+w.suffix+"SVGo", w.typ, w.typ, e, "s", "a")
	}

	entry := func(o op) string {
		n := o.name + w.suffix
		return fmt.Sprintf("{%sGo, %sVSGo, %sSVGo}", n, n, n)
	}

	f.tables("binary"+w.suffix+"Go", "forms"+w.suffix, ops, entry)
	f.p("var high%sGo = map[spirv.Opcode]forms%s{", w.suffix, w.suffix)
	for _, o := range ops {
		if strings.HasPrefix(o.name, "high") {
			f.p("spirv.Op%s: %s,", o.core, entry(o))
		}
	}

	f.p("}\n")
	return f.source()
}

func compares(w width) []byte {
	var f file
	for _, o := range compare {
		e := "mask(" + w.expr(o.expr) + ")"
		f.loop(o.name+w.suffix+"Go", "uint32", w.typ, e, "a", "b")
		f.loop(o.name+w.suffix+"VSGo", "uint32", w.typ, e, "a", "s")
		f.loop(o.name+w.suffix+"SVGo", "uint32", w.typ, e, "s", "a")
	}

	typ := "forms"
	if w.suffix != "" {
		typ = "compareL"
	}

	f.p("var compare%sGo = map[spirv.Opcode]%s{", w.suffix, typ)
	for _, o := range compare {
		n := o.name + w.suffix
		f.p("spirv.Op%s: {%sGo, %sVSGo, %sSVGo},", o.core, n, n, n)
	}

	f.p("}\n")
	return f.source()
}

func unaries() []byte {
	var f file
	for _, w := range []width{w32, w64} {
		ops := append(append([]op(nil), unary...), unary32...)
		if w == w64 {
			ops = append(append([]op(nil), unary...), unary64...)
		}
		for _, o := range ops {
			f.loop(o.name+w.suffix+"Go", w.typ, w.typ, w.expr(o.expr), "a")
		}
		f.tables("unary"+w.suffix+"Go", "Op1"+w.suffix, ops, func(o op) string { return o.name + w.suffix + "Go" })
	}
	return f.source()
}

func ternaries() []byte {
	var f file
	for _, w := range []width{w32, w64} {
		ops := ternary
		if w == w32 {
			ops = append(append([]op(nil), ternary...), ternary32...)
		}
		for _, o := range ops {
			f.loop(o.name+w.suffix+"Go", w.typ, w.typ, w.expr(o.expr), "a", "b", "c")
		}
		f.tables("ternary"+w.suffix+"Go", "Op3"+w.suffix, ops, func(o op) string { return o.name + w.suffix + "Go" })
	}
	return f.source()
}

// files are all of them, by name.
func files() map[string][]byte {
	return map[string][]byte{
		"zbinary.go":   binaries(w32, append(append([]op(nil), binary...), binary32...)),
		"zbinaryl.go":  binaries(w64, binary),
		"zcompare.go":  compares(w32),
		"zcomparel.go": compares(w64),
		"zunary.go":    unaries(),
		"zternary.go":  ternaries(),
	}
}

func main() {
	log.SetFlags(0)
	for name, src := range files() {
		if err := os.WriteFile(name, src, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
