package kernelgen

import (
	"fmt"
	"strings"
)

// statements fills a block with about n statements.
func (g *gen) statements(b *block, n int, f flow) {
	for i := 0; i < n && *f.budget > 0; i++ {
		*f.budget--
		g.statement(b, f)
	}
}

func (g *gen) statement(b *block, f flow) {
	if f.uniform && g.chance(4) {
		g.together(b, f)
		return
	}
	switch g.IntN(16) {
	case 0, 1:
		g.declaration(b)

	case 2, 3, 4, 5:
		g.assignment(b)
	case 6:
		if (f.depth == 0 || !f.tail && f.result == nil) || !g.jump(b, f) {
			g.assignment(b)
		}

	case 7, 8:
		g.selection(b, f)
	case 9, 10:
		if f.loops < 3 {
			g.loop(b, f)
		} else {
			g.assignment(b)
		}

	case 11:
		g.switches(b, f)
	case 12:
		if !g.callStatement(b, f) {
			g.declaration(b)
		}

	case 13:
		if f.main {
			g.effect(b)
		} else {
			g.assignment(b)
		}

	case 14:
		g.twoResults(b)
	default:
		if !g.jump(b, f) {
			g.assignment(b)
		}
	}
}

func (g *gen) declaration(b *block) {
	t, name := pick(g, g.types), g.name("v")
	b.add(&stmt{form: t.name + " " + name + " = $0;", args: []*expr{g.stored(t, 3, false)}})
	g.declare(name, t, true, false, true)
}

func (g *gen) assignment(b *block) {
	t := pick(g, g.types)
	to := g.place(t, false, true)
	if to == nil {
		g.declaration(b)
		return
	}

	switch {
	case t.kind == kindU32 && g.chance(3):
		b.add(&stmt{form: "$0 " + pick(g, []string{"+=", "^=", "*=", "-=", "|="}) + " $1;", args: []*expr{to, g.expr(t, 3, false)}})
	case t.kind == kindI32 && g.chance(4):
		b.add(&stmt{form: "$0 " + pick(g, []string{"+=", "^=", "-="}) + " $1;", args: []*expr{to, g.expr(t, 3, false)}})
	case t == uintT && g.chance(4):
		b.add(&stmt{form: "$0" + pick(g, []string{"++;", "--;"}), args: []*expr{to}})
	case t.isVector() && t.n > 2 && t.kind != kindBool && g.chance(3):
		part := t.elem.with(t.kind)
		part = vectors[part.kind][1]
		swizzle := pick(g, []string{"xy", "yx", "zx", "yz", "xz"})
		b.add(&stmt{form: "$0." + swizzle + " = $1;", args: []*expr{to, g.stored(part, 2, false)}})
	default:
		b.add(&stmt{form: "$0 = $1;", args: []*expr{to, g.stored(t, 3, false)}})
	}
}

// inner is a block of its own below f.
func (g *gen) inner(n int, f flow) *block {
	b := &block{}
	f.depth++
	g.scope(func() { g.statements(b, n, f) })
	return b
}

// diverge reports whether control flow below f still stays together. If it did and
// no longer does, it must not leave a region that stays together.
func (f *flow) diverge(stay bool) {
	if f.uniform && !stay {
		f.uniform, f.jumps, f.result = false, "", nil
	}
}

func (g *gen) selection(b *block, f flow) {
	if f.depth > 4 {
		return
	}

	f.diverge(g.chance(2))
	cond := g.expr(boolT, 3, f.uniform)
	if g.chance(12) {
		cond = &expr{t: boolT, form: pick(g, []string{"sc_b", "sc_u > 2u", "sc_i < 0"})}
	}

	s := &stmt{form: "if ($0) {\n@0}", args: []*expr{cond}, blocks: []*block{g.inner(1+g.IntN(4), f)}}
	switch g.IntN(4) {
	case 0, 1:
		s.form += " else {\n@1}"
		s.blocks = append(s.blocks, g.inner(1+g.IntN(4), f))
	case 2:
		s.form += " else if ($1) {\n@1} else {\n@2}"
		s.args = append(s.args, g.expr(boolT, 2, f.uniform))
		s.blocks = append(s.blocks, g.inner(1+g.IntN(3), f), g.inner(1+g.IntN(3), f))
	}

	b.add(s)
}

// loop is one of the forms of loops, ended by a counter of its own that nothing
// else changes.
func (g *gen) loop(b *block, f flow) {
	if f.depth > 4 {
		return
	}

	f.diverge(g.chance(2))
	f.loops++
	f.jumps = "break continue"
	c := g.name("i")
	start := g.expr(uintT, 2, f.uniform)
	g.scope(func() {
		g.declare(c, uintT, false, f.uniform, false)
		e := func() *expr { return g.expr(uintT, 2, f.uniform) }
		cond := func() *expr { return g.expr(boolT, 2, f.uniform) }
		body := func() []*block { return []*block{g.inner(1+g.IntN(4), f)} }
		var s *stmt
		switch g.IntN(6) {
		case 0:
			s = &stmt{form: fmt.Sprintf("for (uint %s = 0u; %[1]s < %du; %[1]s++) {\n@0}", c, 1+g.IntN(5)), blocks: body()}
		case 1:
			s = &stmt{form: fmt.Sprintf("for (uint %s = $0 & 3u; %[1]s < 5u; %[1]s += 1u + ($1 & 1u)) {\n@0}", c), args: []*expr{start, e()}, blocks: body()}
		case 2:
			s = &stmt{form: fmt.Sprintf("for (uint %s = ($0 & 3u) + 1u; %[1]s-- > 0u; ) {\n@0}", c), args: []*expr{start}, blocks: body()}
		case 3:
			s = &stmt{form: fmt.Sprintf("{ uint %s = 0u; while (%[1]s < 4u && $0) {\n\t%[1]s++;\n@0} }", c), args: []*expr{cond()}, blocks: body()}
		case 4:
			s = &stmt{form: fmt.Sprintf("{ uint %s = 0u; do {\n\t%[1]s++;\n@0} while (%[1]s < 3u && $0); }", c), args: []*expr{cond()}, blocks: body()}
		default:
			s = &stmt{form: fmt.Sprintf("for (uint %s = 0u; ; %[1]s++) {\n\tif (%[1]s >= ($0 & 3u) + 1u) break;\n@0}", c), args: []*expr{e()}, blocks: body()}
		}

		b.add(s)
	})
}

func (g *gen) switches(b *block, f flow) {
	if f.depth > 4 {
		return
	}

	f.diverge(g.chance(3))
	inLoop := strings.Contains(f.jumps, "continue")
	f.jumps = "break"
	if inLoop {
		f.jumps = "break continue"
	}

	cases := 2 + g.IntN(4)
	s := &stmt{form: "switch ($0 % 6u) {\n", args: []*expr{g.expr(uintT, 3, f.uniform)}}
	selector := uintT
	if g.chance(3) {
		s.form, selector = "switch ($0 & 3) {\n", intT
		s.args[0] = g.expr(intT, 3, f.uniform)
	}

	fallback := g.IntN(cases + 1)
	for i := range cases {
		if i == fallback {
			s.form += "default:\n"
		}
		if selector == intT {
			s.form += fmt.Sprintf("case %d: {\n@%d}\n", i, i)
		} else {
			s.form += fmt.Sprintf("case %du: {\n@%d}\n", i, i)
		}
		if i == cases-1 || !g.chance(3) {
			s.form += "\tbreak;\n"
		}
		s.blocks = append(s.blocks, g.inner(1+g.IntN(3), f))
	}

	s.form += "}"
	b.add(s)
}

// jump leaves a loop, a switch, a function, or the tail of main, on a condition.
func (g *gen) jump(b *block, f flow) bool {
	var ways []string
	if f.jumps != "" {
		ways = strings.Fields(f.jumps)
	}

	switch {
	case f.result != nil:
		ways = append(ways, "return $1")
	case f.tail:
		ways = append(ways, "return")
	}

	if len(ways) == 0 {
		return false
	}

	way := pick(g, ways)
	s := &stmt{form: "if ($0) " + way + ";", args: []*expr{g.expr(boolT, 2, f.uniform)}}
	if f.result != nil && strings.HasPrefix(way, "return") {
		s.args = append(s.args, g.stored(f.result, 2, false))
	}

	b.add(s)
	return true
}

// twoResults are the functions of GLSL that return two values.
func (g *gen) twoResults(b *block) {
	x, y := g.name("v"), g.name("v")
	t := vectors[kindU32][g.IntN(2)]
	f := vectors[kindF32][g.IntN(2)]
	i := f.with(kindI32)
	var s *stmt
	u := func() *expr { return g.expr(t, 2, false) }
	second := t
	switch g.IntN(6) {
	case 0:
		s = &stmt{form: fmt.Sprintf("%s %s, %s = uaddCarry($0, $1, %[2]s);", t.name, x, y), args: []*expr{u(), u()}}

	case 1:
		s = &stmt{form: fmt.Sprintf("%s %s, %s = usubBorrow($0, $1, %[2]s);", t.name, x, y), args: []*expr{u(), u()}}
	case 2:
		s = &stmt{form: fmt.Sprintf("%s %s, %s; umulExtended($0, $1, %[2]s, %[3]s);", t.name, x, y), args: []*expr{u(), u()}}

	case 3:
		t = t.with(kindI32)
		second = t
		s = &stmt{form: fmt.Sprintf("%s %s, %s; imulExtended($0, $1, %[2]s, %[3]s);", t.name, x, y), args: []*expr{u(), u()}}

	case 4:
		second = f
		t = f
		s = &stmt{form: fmt.Sprintf("%s %s, %s = nf(modf($0, %[2]s));", t.name, x, y), args: []*expr{g.leaf(f, false)}}

	default:
		second, t = f, i
		s = &stmt{form: fmt.Sprintf("%s %s; %s %s = frexp($0, %[2]s);", i.name, x, f.name, y), args: []*expr{g.leaf(f, false)}}
	}

	b.add(s)
	g.declare(x, t, true, false, true)
	g.declare(y, second, true, false, true)
}

// callStatement calls a function that may have out parameters.
func (g *gen) callStatement(b *block, f flow) bool {
	var fit []function
	for _, c := range g.funcs {
		if (!c.uniform || f.uniform && f.main) && (f.main || c.pure) {
			fit = append(fit, c)
		}
	}

	if len(fit) == 0 {
		return false
	}

	c := pick(g, fit)
	s := &stmt{}
	var before, args []string
	for _, p := range c.params {
		n := len(s.args)
		if p.how == "" {
			s.args = append(s.args, g.stored(p.t, 2, false))
			args = append(args, fmt.Sprintf("$%d", n))
			continue
		}
		// Each parameter gets a variable of its own, because the effect of two
		// parameters on one is unspecified.
		name := g.name("v")
		s.args = append(s.args, g.stored(p.t, 1, false))
		before = append(before, fmt.Sprintf("%s %s = $%d;", p.t.name, name, n))
		args = append(args, name)
		defer g.declare(name, p.t, true, false, true)
	}

	name := g.name("v")
	s.form = strings.Join(append(before, fmt.Sprintf("%s %s = %s(%s);", c.result.name, name, c.name, strings.Join(args, ", "))), " ")
	b.add(s)
	g.declare(name, c.result, true, false, true)
	return true
}
