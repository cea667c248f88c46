package kernelgen

import (
	"regexp"
	"slices"
	"strings"
)

// openCLNames are replacements that single tokens do not determine.
var openCLNames = strings.NewReplacer(
	"in_f.length()", "length_in_f", "in_s.length()", "length_in_s", "in_s.a[", "in_s[",
	"float(in_h[", "half_float(in_h[", "memoryBarrierBuffer();", "", "barrier();", "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
)

// translator turns the text of GLSL functions into OpenCL C, token by token.
type translator struct {
	context map[string]bool  // names in the context
	outs    map[string][]int // numbers of a function's parameters that are pointers
	own     map[string]bool  // functions that get the context
	out     map[string]bool  // parameters that are pointers
	calls   []call           // around the current text
	w       strings.Builder
}

// call is a call, or the head of a function, between its parentheses.
type call struct {
	name       string
	definition bool
	parens     int
	arg        int
}

func newTranslator() *translator {
	t := &translator{
		context: map[string]bool{}, own: map[string]bool{}, out: map[string]bool{},
		outs: map[string][]int{"modf": {1}, "frexp": {1}, "uaddCarry": {2}, "usubBorrow": {2}, "umulExtended": {2, 3}, "imulExtended": {2, 3}},
	}
	for _, name := range strings.Fields(openCLContextNames) {
		t.context[name] = true
	}
	for _, name := range []string{"Add", "Min", "Max", "And", "Or", "Xor", "Exchange", "CompSwap"} {
		t.outs["atomic"+name] = []int{0}
	}
	return t
}

var (
	tokens       = regexp.MustCompile(`\d[0-9a-zA-Z.]*(?:e-\d+)?|\w+|\^\^|\s+|.`)
	typeName     = regexp.MustCompile(`^(?:u?int|float|bool|double|u?int64_t|uint8_t|[biu]?vec[234]|S\d)$`)
	arrayPart    = regexp.MustCompile(`^\[(\d+)\]`)
	functionName = regexp.MustCompile(`^fn\d+$`)
	fraction     = regexp.MustCompile(`^\d[0-9.]*(?:\.|e)`)
	builtins     = strings.Fields("min max clamp abs sign floor ceil trunc roundEven fract step mix ldexp bitfieldReverse bitCount findMSB findLSB " +
		"bitfieldExtract bitfieldInsert floatBitsToUint uintBitsToFloat intBitsToFloat packUint2x32 uint64BitsToDouble " +
		"isnan isinf any all not lessThan lessThanEqual greaterThanEqual equal notEqual nf bits " +
		"sin cos tan asin acos atan sinh cosh tanh exp exp2 log log2 pow sqrt inversesqrt smoothstep length distance dot normalize cross " +
		"reflect refract faceforward fma radians degrees mod packHalf2x16 unpackHalf2x16 packUnorm4x8 unpackUnorm4x8 packSnorm2x16 unpackSnorm2x16")
)

// cTypes are the names in C of GLSL's scalars and vectors.
var cTypes = func() map[string]string {
	names := map[string]string{"uint8_t": "uchar"}
	for _, of := range vectors {
		for _, t := range of {
			names[t.name] = t.cName()
		}
	}
	return names
}()

// translate translates whole functions, or the body of one.
func (t *translator) translate(text string) string {
	t.w.Reset()
	last := ""       // token that is not space
	pointer := false // the current parameter is a pointer
	for text != "" {
		tok := tokens.FindString(text)
		if tok == "" { // a line's end
			tok = text[:1]
		}

		text = text[len(tok):]
		if strings.TrimSpace(tok) == "" {
			t.w.WriteString(tok)
			continue
		}

		calls := strings.HasPrefix(text, "(")
		top := (*call)(nil)
		if len(t.calls) > 0 {
			top = &t.calls[len(t.calls)-1]
		}

		switch {
		case last == ".":
			t.w.WriteString(tok)

		case tok == "out" || tok == "inout":
			pointer = true
			t.outs[top.name] = append(t.outs[top.name], top.arg)

		case typeName.MatchString(tok):
			name, made := cTypes[tok], calls
			if name == "" {
				name = tok // a struct's
			}
			if part := arrayPart.FindStringSubmatch(text); part != nil {
				name = tok + "_" + part[1]
				text = text[len(part[0]):]
				made = strings.HasPrefix(text, "(")
				if made {
					name = "mk_" + name
				}
			} else if made && (strings.Contains(tok, "vec") || tok[0] == 'S') {
				name = "mk_" + tok
			} else if made {
				name = "(" + name + ")"
			}
			t.w.WriteString(name)
			if pointer {
				t.w.WriteString(" *")
			}

		case calls && (functionName.MatchString(tok) || t.outs[tok] != nil || slices.Contains(builtins, tok)):
			c := call{name: tok, definition: functionName.MatchString(tok) && !t.own[tok]}
			if c.definition {
				t.own[tok] = true
			}
			text = text[1:]
			if !t.own[tok] {
				t.w.WriteString("g_")
			}
			t.w.WriteString(tok + "(")
			if t.own[tok] {
				if c.definition {
					t.w.WriteString("context *")
				}
				t.w.WriteString("C")
				if !strings.HasPrefix(text, ")") {
					t.w.WriteString(", ")
				}
			}
			if !c.definition && slices.Contains(t.outs[tok], 0) {
				t.w.WriteString("&")
			}
			t.calls = append(t.calls, c)
			tok = "("

		case pointer:
			t.out[tok], pointer = true, false
			t.w.WriteString(tok)

		case t.out[tok]:
			t.w.WriteString("(*" + tok + ")")
		case tok == "pc":
			t.w.WriteString("(*C->pc)")

		case t.context[tok]:
			t.w.WriteString("C->" + tok)
		case fraction.MatchString(tok) && !strings.HasPrefix(tok, "0x"):
			if double, ok := strings.CutSuffix(tok, "lf"); ok {
				t.w.WriteString(double)
			} else {
				t.w.WriteString(tok + "f")
			}

		case tok == "^^": // of two that are 0 or 1
			t.w.WriteString("!=")
		default:
			t.w.WriteString(tok)
			t.parens(top, tok)
		}

		last = tok
	}

	return t.w.String()
}

// parens follows the parentheses and commas of calls.
func (t *translator) parens(top *call, tok string) {
	if top == nil {
		return
	}
	switch {
	case tok == "(":
		top.parens++
	case tok == ")" && top.parens == 0:
		t.calls = t.calls[:len(t.calls)-1]
	case tok == ")":
		top.parens--
	case tok == "," && top.parens == 0:
		top.arg++
		if !top.definition && slices.Contains(t.outs[top.name], top.arg) {
			t.w.WriteString(" &")
		}
	}
}
