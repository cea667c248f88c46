package kernelgen

import (
	"fmt"
	"slices"
)

// one is an operation for results of one kind, of scalars, vectors or both.
type one struct {
	op
	kind             kind
	scalars, vectors bool
}

// all are all exact operations, those of 64 bits last.
var all = func() (list []one) {
	for k := kindBool; k <= kindF64; k++ {
		for _, o := range ops[min(int(k), len(ops)-1)] {
			if k != kindBool {
				list = append(list, one{o, k, true, k < kindU64})
			}
		}
		for _, o := range scalarOps[k] {
			list = append(list, one{o, k, true, false})
		}
		for _, o := range vectorOps[k] {
			list = append(list, one{o, k, false, true})
		}
	}
	return list
}()

// Surveys is the number of consecutive numbers that cover everything.
func Surveys(wide bool) int { return (len(surveyed(wide)) + surveyOps - 1) / surveyOps }

// The amount of work in one kernel of a survey.
const (
	surveyOps         = 16
	surveyApproximate = 4
)

func surveyed(wide bool) []one {
	if wide {
		return all
	}
	for i, o := range all {
		if o.kind >= kindU64 {
			return all[:i]
		}
	}
	return all
}

// survey makes main of the operations after those of the previous survey.
func (g *gen) survey() {
	m := g.k.main
	if g.o.Subgroup {
		g.surveySubgroups()
	}

	list := surveyed(g.o.Wide)
	for i := range surveyOps {
		if g.slot >= outWords-4 {
			break
		}

		o := list[(g.o.Survey*surveyOps+i)%len(list)]
		t := vectors[o.kind][0]
		if !o.scalars || o.vectors && g.chance(2) {
			t = vectors[o.kind][1+g.IntN(3)]
		}

		e := o.instance(t, func(at *typ, _ int) *expr { return g.argument(at) })
		if t.kind == kindF32 || t.kind == kindF64 {
			e = &expr{t, "nf($0)", []*expr{e}}
		}

		name := g.name("v")
		m.add(&stmt{form: t.name + " " + name + " = $0;", args: []*expr{e}})
		for c := range t.n {
			part := name
			if t.n > 1 {
				part += "." + "xyzw"[c:c+1]
			}
			m.add(&stmt{form: fmt.Sprintf("out_u[o + %du] = bits(%s);", g.slot, part)})
			g.slot = min(g.slot+1, outWords-1)
		}
	}

	for i := range surveyApproximate {
		f := approximate[(g.o.Survey*surveyApproximate+i)%len(approximate)]
		m.add(&stmt{
			form: fmt.Sprintf("approx[gid * %du + %du] = %s;", approxWords, i, f),
			args: []*expr{g.argument(vectors[kindF32][2])},
		})
	}
}

// surveySubgroups does the same for subgroup operations.
func (g *gen) surveySubgroups() {
	forms := subgroupForms
	if g.o.Shuffle {
		forms = append(slices.Clone(forms), shuffleForms...)
	}
	for i := range surveyOps {
		f := forms[(g.o.Survey*surveyOps+i)%len(forms)]
		name := g.name("v")
		g.k.main.add(f.stmt(name, func(t *typ) *expr { return g.argument(t) }))
		g.k.main.add(&stmt{form: fmt.Sprintf("out_u[o + %du] = bits(%s);", g.slot, name)})
		g.slot++
	}
}

// argument is a value from the buffers, different for each invocation.
func (g *gen) argument(t *typ) *expr {
	if t.n > 1 {
		e := &expr{t: t, form: t.name + "("}
		for i := range t.n {
			if i > 0 {
				e.form += ", "
			}
			e.form += fmt.Sprintf("$%d", i)
			e.args = append(e.args, g.argument(t.elem))
		}
		e.form += ")"
		return e
	}

	at := g.IntN(64)
	var form string
	switch t.kind {
	case kindBool:
		form = "((in_u[gid + %du & 255u] & 1u) != 0u)"
	case kindU32:
		form = "in_u[gid + %du & 255u]"
	case kindI32:
		form = "in_i[gid + %du & 63u].z"
	case kindF32:
		form = "in_f[gid + %du & 255u]"
	case kindU64:
		form = "in_l[gid + %du & 63u]"
	case kindI64:
		form = "int64_t(in_l[gid + %du & 63u])"
	default:
		form = "double(in_f[gid + %du & 255u])"
	}

	return &expr{t: t, form: fmt.Sprintf(form, at)}
}
