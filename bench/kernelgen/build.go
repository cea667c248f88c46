package kernelgen

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// makeBuffers declares the buffers, push constants and specialisation constants for
// the program, and fills them.
func (g *gen) makeBuffers(s0 *typ) {
	g.declare("in_s", g.array(s0, 16), false, true, false)
	first := len(g.vars)
	g.declare("pc.pu", uintT, false, true, false)
	g.declare("pc.pi", intT, false, true, false)
	g.declare("pc.pf", fltT, false, true, false)
	g.declare("pc.pv", vectors[kindU32][1], false, true, false)
	g.declare("pc.pa", g.array(uintT, 4), false, true, false)
	g.declare("pc.pw", vectors[kindF32][2], false, true, false)
	for i := range g.vars[first:] {
		g.vars[first+i].together = true // Vulkan's rule for push constants
	}

	g.declare("c_u", uintT, false, true, false)
	g.declare("c_i", intT, false, true, false)
	g.declare("c_f", fltT, false, true, false)
	g.declare("c_b", boolT, false, true, false)
	g.declare("c_v", uintT, false, true, false)
	g.declare("gl_WorkGroupID", vectors[kindU32][2], false, true, false)
	g.declare("gl_NumWorkGroups", vectors[kindU32][2], false, true, false)
	if g.chance(2) {
		g.k.Constants = []Constant{{4, g.Uint32N(100)}, {5, randomWord(g.Rand)}, {6, 0x3FC00000}, {7, g.Uint32N(2)}}
	}

	push := &typ{kind: kindStruct, n: 1, fields: []*typ{uintT, intT, fltT, vectors[kindU32][1], g.array(uintT, 4), vectors[kindF32][2]}}
	size, _ := push.layout()
	g.k.Inline = make([]byte, size)
	push.fill(g.k.Inline, g.Rand)

	g.k.Bindings = make([][]byte, 16)
	g.k.fillInputs(s0, g.Rand)
	g.k.sizeBindings()
}

// sizeBindings makes the buffers with a part for each invocation.
func (k *Kernel) sizeBindings() {
	n := k.invocations()
	b := append([][]byte{}, k.Bindings...)
	r := rand.New(rand.NewPCG(k.Seed, 1))
	b[2] = make([]byte, 4*outWords*n)
	b[3] = make([]byte, 4*approxWords*n)
	s0 := len(b[5]) / 16
	b[6] = make([]byte, s0*n)
	for i := range n {
		copy(b[6][i*s0:], b[5][(i%16)*s0:][:s0])
	}

	b[7] = make([]byte, 4*n)
	b[8] = nil
	for range 20 + n {
		b[8] = appendWords(b[8], randomWord(r))
	}

	if k.Options.Wide {
		b[10], b[11] = make([]byte, 8*n), make([]byte, 8*n)
	}
	if k.Options.Narrow {
		b[15] = make([]byte, roundUp(n, 4))
	}

	k.Bindings = b
}

// fillInputs fills the read-only buffers.
func (k *Kernel) fillInputs(s0 *typ, r *rand.Rand) {
	fill := func(t *typ, count int) []byte {
		size, align := t.layout()
		b := make([]byte, roundUp(size, align)*count)
		for i := range count {
			t.fill(b[i*roundUp(size, align):], r)
		}
		return b
	}

	k.Bindings[0] = fill(uintT, 256)
	k.Bindings[1] = fill(fltT, 256)
	k.Bindings[4] = fill(vectors[kindI32][3], 64)
	k.Bindings[5] = fill(s0, 16)
	if k.Options.Wide {
		k.Bindings[9] = fill(vectors[kindU64][0], 64)
	}

	if k.Options.Narrow {
		k.Bindings[12] = fill(uintT, 64)
		k.Bindings[13] = fill(uintT, 64)
		var halves []byte
		for range 128 { // 2^-7 to 2^8, either sign
			h := (8+r.Uint32N(16))<<10 | r.Uint32N(1024) | r.Uint32N(2)<<15
			halves = append(halves, byte(h), byte(h>>8))
		}
		k.Bindings[14] = halves
	}
}

// makeGlobals declares global variables, arrays of shared memory and a table.
func (g *gen) makeGlobals() {
	d := g.k.decls
	name := g.name("tab")
	t := g.array(uintT, 8)
	d.add(&stmt{form: "const uint " + name + "[8] = " + g.literalText(t) + ";"})
	g.declare(name, t, false, true, false)
	for range 1 + g.IntN(1+g.size) {
		t := pick(g, g.types)
		for t.hasBool() || t.scalars() > 8 {
			t = pick(g, g.types)
		}
		name := g.name("sh")
		d.add(&stmt{form: fmt.Sprintf("shared %s %s[128];", t.name, name), pinned: true})
		g.k.shared = append(g.k.shared, sharedArray{name, t})
		g.k.main.add(&stmt{form: fmt.Sprintf("%s[lid] = %s;", name, g.literalText(t)), pinned: true})
	}
}

// mutableGlobals are the variables that functions with side effects, and main, may
// change.
func (g *gen) mutableGlobals(s0 *typ) {
	for _, s := range g.k.shared {
		g.declare(s.array+"[lid]", s.t, true, false, false)
	}
	g.declare("rw_s[gid]", s0, true, false, false)
	g.declare("ex[gid]", uintT, true, false, false)
	if g.o.Wide {
		g.declare("rw_l[gid]", vectors[kindU64][0], true, false, false)
		g.declare("rw_d[gid]", vectors[kindF64][0], true, false, false)
	}
}

// makeFunction makes a function: pure, with side effects, or with barriers.
func (g *gen) makeFunction(budget *int) {
	f := function{name: g.name("fn"), result: pick(g, g.types), pure: !g.chance(3)}
	for f.result.kind == kindArray {
		f.result = pick(g, g.types)
	}

	f.uniform = !f.pure && g.chance(2)
	body := &block{}
	var params []string
	head := ""
	g.scope(func() {
		var s0 *typ
		for _, t := range g.types {
			if t.name == "S0" {
				s0 = t
			}
		}

		if !f.pure {
			g.mutableGlobals(s0)
		}

		for range g.IntN(4) {
			p := param{how: pick(g, []string{"", "", "inout ", "out "}), t: pick(g, g.types)}
			name := g.name("p")
			params = append(params, p.how+declarator(p.t, name))
			if p.how == "out " {
				head += "\t" + name + " = " + g.literalText(p.t) + ";\n"
			}
			f.params = append(f.params, p)
			g.declare(name, p.t, true, false, true)
		}

		fl := flow{uniform: f.uniform, budget: budget, result: f.result, loops: 1, depth: 1}
		if f.uniform {
			fl.result = nil
		}

		g.statements(body, 1+g.IntN(2+g.size), fl)
		s := &stmt{
			form:   f.result.name + " " + f.name + "(" + strings.Join(params, ", ") + ") {\n" + head + "@0\treturn $0;\n}",
			args:   []*expr{g.stored(f.result, 2, false)},
			blocks: []*block{body},
		}
		g.k.decls.add(s)
	})

	g.funcs = append(g.funcs, f)
}

// makeMain makes the body of main: a part in which the workgroup stays together, a
// dump of the variables, and a tail in which invocations may return.
func (g *gen) makeMain(s0 *typ) {
	m := g.k.main
	g.mutableGlobals(s0)
	for range 1 + g.IntN(1+g.size) {
		g.declaration(m)
	}

	budget := (4 + g.IntN(8)) * g.size
	g.statements(m, (3+g.IntN(5))*g.size, flow{uniform: true, main: true, budget: &budget})
	if g.o.Narrow {
		m.add(&stmt{form: "rw_b[gid] = uint8_t($0);", args: []*expr{g.expr(uintT, 2, false)}})
	}

	for i := range g.IntN(1 + g.size) {
		f := pick(g, approximate)
		m.add(&stmt{form: fmt.Sprintf("approx[gid * %du + %du] = %s;", approxWords, i, f), args: []*expr{g.leaf(vectors[kindF32][2], false)}})
	}

	g.dump(m)
	if !g.chance(3) {
		budget = 6 + g.size
		f := flow{main: true, tail: true, budget: &budget}
		g.statements(m, 1+g.IntN(1+g.size), f)
		if g.chance(2) {
			g.loop(m, f)
		}
		g.jump(m, f)
		g.statements(m, 1, f)
	}

	g.slot = max(g.slot, outWords-20)
	g.dump(m)
}

// dump stores some variables, component by component, while there is room.
func (g *gen) dump(m *block) {
	limit := min(g.slot+5*g.size, outWords-5)
	for i := len(g.vars) - 1; i >= 0 && g.slot < limit; i-- {
		v := g.vars[i]
		if !v.local {
			continue
		}

		for _, t := range []*typ{uintT, intT, fltT, boolT, vectors[kindU64][0], vectors[kindI64][0], vectors[kindF64][0]} {
			for _, a := range g.reach(v, t) {
				if g.slot >= limit {
					return
				}
				e := &expr{t: t, form: a.form}
				for range a.indices {
					e.args = append(e.args, g.expr(uintT, 0, false))
				}
				m.add(&stmt{form: fmt.Sprintf("out_u[o + %du] = bits($0);", g.slot), args: []*expr{e}})
				g.slot++
			}
		}
	}
}
