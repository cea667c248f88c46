package spirv

import (
	"math"
	"strconv"
	"strings"
)

// names are ids as text for a disassembly: each is unique, a "%" and then letters,
// digits and "_". They come from OpName, else from the type or constant, else they
// are the number.
type names struct {
	list  []string // by id; "" until it is asked for
	used  map[string]bool
	tries map[string]int // of a name in use: the suffix to try next
}

// maxName is the longest friendly name. Instructions repeat names, so long ones
// would make the text quadratic in the module.
const maxName = 48

func friendlyNames(m *Module) names {
	n := names{list: make([]string, m.Bound), used: map[string]bool{}, tries: map[string]int{}}
	for i := range m.Debug {
		in := &m.Debug[i]
		if id := in.Arg(0); in.Op == OpName && n.list[id] == "" {
			text, _ := Text(in.Args[1:])
			n.set(id, identifier(text))
		}
	}

	for i := range m.Globals {
		in := &m.Globals[i]
		if in.Result == 0 || n.list[in.Result] != "" {
			continue
		}
		if text := n.describe(m, in); text != "" && len(text) <= maxName {
			n.set(in.Result, text)
		}
	}

	return n
}

// of is id's name, with the "%".
func (n *names) of(id ID) string {
	if uint64(id) >= uint64(len(n.list)) || n.list[id] == "" {
		return "%" + strconv.FormatUint(uint64(id), 10)
	}
	return n.list[id]
}

func (n *names) set(id ID, text string) {
	if n.used[text] {
		base := text
		for n.used[text] {
			text = base + "_" + strconv.Itoa(n.tries[base])
			n.tries[base]++
		}
	}
	n.used[text] = true
	n.list[id] = "%" + text
}

// identifier is text with "_" for every character that is neither a letter nor a
// digit. It does not begin with a digit, as numbers do.
func identifier(text string) string {
	if text == "" {
		return "_"
	}
	if len(text) > maxName {
		text = text[:maxName]
	}

	out := []byte(text)
	for i, c := range out {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if digit := c >= '0' && c <= '9'; !letter && !digit {
			out[i] = '_'
		}
	}

	if out[0] >= '0' && out[0] <= '9' {
		return "_" + string(out)
	}

	return string(out)
}

// describe names a type or constant by its definition; "" if there is no such name.
// Its parts have names already.
func (n *names) describe(m *Module, in *Inst) string {
	part := func(i int) string { return strings.TrimPrefix(n.of(in.Arg(i)), "%") }
	switch in.Op {
	case OpTypeVoid:
		return "void"

	case OpTypeBool:
		return "bool"
	case OpTypeInt:
		unsigned := ""
		if in.Args[1] == 0 {
			unsigned = "u"
		}
		switch in.Args[0] {
		case 8:
			return unsigned + "char"
		case 16:
			return unsigned + "short"
		case 32:
			return unsigned + "int"
		case 64:
			return unsigned + "long"
		}

	case OpTypeFloat:
		switch in.Args[0] {
		case 16:
			return "half"
		case 32:
			return "float"
		case 64:
			return "double"
		}

	case OpTypeVector:
		return "v" + strconv.FormatUint(uint64(in.Args[1]), 10) + part(0)
	case OpTypeArray:
		return "_arr_" + part(0) + "_" + part(1)

	case OpTypeRuntimeArray:
		return "_runtimearr_" + part(0)
	case OpTypePointer:
		return "_ptr_" + identifier(StorageClass(in.Args[0]).String()) + "_" + part(1)

	case OpTypeStruct:
		return "_struct_" + strconv.FormatUint(uint64(in.Result), 10)
	case OpConstantTrue:
		return "true"

	case OpConstantFalse:
		return "false"
	case OpConstant:
		value := strings.ReplaceAll(m.literal(in.Type, in.Args), "-", "n")
		return identifier(strings.TrimPrefix(n.of(in.Type), "%") + "_" + value)
	}

	return ""
}

// literal writes a number of type t so that spirv-as reads back the same bits.
func (m *Module) literal(t ID, words []uint32) string {
	v := uint64(words[0])
	if len(words) > 1 {
		v |= uint64(words[1]) << 32
	}
	d := m.Def(t) // Parse has checked that it is OpTypeInt or OpTypeFloat
	width := int(d.Args[0])
	if d.Op == OpTypeFloat {
		return float(v, width)
	}
	shift := 64 - width
	if d.Args[1] != 0 {
		return strconv.FormatInt(int64(v<<shift)>>shift, 10)
	}
	return strconv.FormatUint(v<<shift>>shift, 10)
}

// float writes the bits of a float of this width. Infinities and NaNs are in
// hexadecimal, their exponent one more than the largest.
func float(v uint64, width int) string {
	mantissa, f := 52, math.Float64frombits(v)
	switch width {
	case 32:
		mantissa, f = 23, float64(math.Float32frombits(uint32(v)))
	case 16:
		mantissa, f = 10, half(uint16(v))
	}

	if !math.IsInf(f, 0) && !math.IsNaN(f) {
		return strconv.FormatFloat(f, 'g', -1, max(width, 32))
	}

	text := "0x1"
	if v>>(width-1)&1 != 0 {
		text = "-0x1"
	}

	if rest := v & (1<<mantissa - 1); rest != 0 {
		digits := (mantissa + 3) / 4
		hex := strconv.FormatUint(rest<<(4*digits-mantissa), 16)
		text += "." + strings.TrimRight(strings.Repeat("0", digits-len(hex))+hex, "0")
	}

	return text + "p+" + strconv.Itoa(1<<(width-mantissa-2))
}

// half is the value of an IEEE 754 binary16.
func half(v uint16) float64 {
	exponent, mantissa := int(v>>10&31), float64(v&0x3ff)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(mantissa, -24)
	case 31:
		f = math.Inf(1)
		if mantissa != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(mantissa+1024, exponent-25)
	}

	if v>>15 != 0 {
		f = -f
	}

	return f
}
