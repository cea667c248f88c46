package kernelgen

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// variable is anything with a name and a type in the program's text.
type variable struct {
	name string
	t    *typ
	// mutable ones may be assigned to, in any control flow.
	mutable bool
	// uniform ones have the same value in all invocations of a workgroup.
	uniform bool
	// local ones are variables of a function, and not memory.
	local bool
	// together ones are indexed only by values that are the same in a workgroup.
	together bool
}

// function is a function that can be called.
type function struct {
	name   string
	result *typ
	params []param
	// pure ones change only their out parameters.
	pure bool
	// uniform ones have barriers: they are called only in uniform control flow.
	uniform bool
}

type param struct {
	how string // "", "out ", "inout "
	t   *typ
}

// flow is the control flow at a statement.
type flow struct {
	uniform bool // the whole workgroup comes here together
	main    bool
	tail    bool // of main: nothing after it needs the whole workgroup
	loops   int
	depth   int
	budget  *int // statements left
	jumps   string
	result  *typ // of the function
}

// gen is the state of making one kernel.
type gen struct {
	*rand.Rand
	o     Options
	vars  []variable
	funcs []function
	types []*typ // possible types of variables
	names int
	nest  int // of expr
	size  int // 1: small, 3: large
	slot  int // next word of an invocation's output
	k     *Kernel
	arr   map[string]*typ
}

func (g *gen) name(prefix string) string {
	g.names++
	return prefix + strconv.Itoa(g.names)
}

// chance is true once in n times.
func (g *gen) chance(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *gen, from []T) T { return from[g.IntN(len(from))] }

// scope runs f; f's declarations are gone afterwards.
func (g *gen) scope(f func()) {
	n := len(g.vars)
	f()
	g.vars = g.vars[:n]
}

func (g *gen) declare(name string, t *typ, mutable, uniform, local bool) {
	g.vars = append(g.vars, variable{name: name, t: t, mutable: mutable, uniform: uniform, local: local})
}

func (g *gen) array(elem *typ, length int) *typ {
	name := fmt.Sprintf("%s[%d]", elem.name, length)
	if t, ok := g.arr[name]; ok {
		return t
	}
	t := &typ{kind: kindArray, name: name, elem: elem, length: length, n: 1}
	g.arr[name] = t
	return t
}

// access is an access path through a variable to a value of some type; $0… are
// indices.
type access struct {
	form     string
	indices  int
	together bool // see variable
}

// reach finds the paths from v to values of type want. Components of vectors are
// values of their own if the element type is wanted.
func (g *gen) reach(v variable, want *typ) []access {
	var found []access
	var walk func(form string, t *typ, n, depth int)
	walk = func(form string, t *typ, n, depth int) {
		if t == want {
			found = append(found, access{form, n, v.together})
			return
		}
		if depth > 3 || n > 2 {
			return
		}

		switch {
		case t.isVector() && t.elem == want:
			found = append(found, access{form + "." + "xyzw"[:t.n][g.IntN(t.n):][:1], n, v.together})
			if t.n == 3 {
				found = append(found, access{fmt.Sprintf("%s[$%d %% 3u]", form, n), n + 1, v.together})
			} else {
				found = append(found, access{fmt.Sprintf("%s[$%d & %du]", form, n, t.n-1), n + 1, v.together})
			}
		case t.kind == kindStruct:
			for i, f := range t.fields {
				walk(form+"."+fieldName(i), f, n, depth+1)
			}
		case t.kind == kindArray:
			walk(fmt.Sprintf("%s#[$%d %% %du]", form, n, t.length), t.elem, n+1, depth+1)
		}
	}

	walk(v.name, v.t, 0, 0)
	return found
}

// place is a random path to a value of type t that can be read, or written if write
// is set; nil if there is none.
func (g *gen) place(t *typ, uniform, write bool) *expr {
	var all []access
	for _, v := range g.vars {
		if write && !v.mutable || uniform && !v.uniform {
			continue
		}
		all = append(all, g.reach(v, t)...)
	}

	if len(all) == 0 {
		return nil
	}

	a := pick(g, all)
	e := &expr{t: t, form: a.form}
	for range a.indices {
		e.args = append(e.args, g.expr(uintT, g.IntN(2), uniform || a.together))
	}

	return e
}

// literal is a constant of type t.
func (g *gen) literal(t *typ) *expr {
	return &expr{t: t, form: g.literalText(t)}
}

func (g *gen) literalText(t *typ) string {
	switch t.kind {
	case kindArray, kindStruct:
		parts := make([]string, 0, 8)
		for _, f := range t.fields {
			parts = append(parts, g.literalText(f))
		}
		for range t.length {
			parts = append(parts, g.literalText(t.elem))
		}
		return t.name + "(" + strings.Join(parts, ", ") + ")"
	}

	if t.n > 1 {
		parts := make([]string, t.n)
		for i := range parts {
			parts[i] = g.literalText(t.elem)
		}
		return t.name + "(" + strings.Join(parts, ", ") + ")"
	}

	switch t.kind {
	case kindBool:
		return strconv.FormatBool(g.chance(2))
	case kindU32:
		return fmt.Sprintf("%du", randomWord(g.Rand))
	case kindI32:
		return fmt.Sprintf("int(%du)", randomWord(g.Rand))
	case kindF32:
		return floatText(randomFloat(g.Rand))
	case kindU64:
		return fmt.Sprintf("%dul", g.Uint64()>>(g.UintN(4)*16))
	case kindI64:
		return fmt.Sprintf("int64_t(%dul)", g.Uint64()>>(g.UintN(4)*16))
	default:
		return "double(" + floatText(randomFloat(g.Rand)) + ")"
	}
}

// floatText has as many digits as a double: glslang computes with constants as if
// they were doubles.
func floatText(f float32) string {
	s := strconv.FormatFloat(float64(f), 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	if f < 0 {
		s = "(" + s + ")"
	}
	return s
}
