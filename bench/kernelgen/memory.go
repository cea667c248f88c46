package kernelgen

import (
	"fmt"
	"strings"
)

// Slots of the buffers that all invocations change, each by one kind of atomic.
var commuting = []struct{ form, t string }{
	{"atomicAdd(%s[0], $0)", "u"}, {"atomicMin(%s[1], $0)", "u"}, {"atomicMax(%s[2], $0)", "u"}, {"atomicAnd(%s[3], $0)", "u"},
	{"atomicOr(%s[4], $0)", "u"}, {"atomicXor(%s[5], $0)", "u"}, {"atomicExchange(%s[6], 77u)", ""}, {"atomicAdd(%s[8u + ($0 & 7u)], $1)", "uu"},
	{"atomicAdd(%s[8u + ($0 & 7u)], 1u)", "u"},
}

// effect changes memory in any control flow.
func (g *gen) effect(b *block) {
	u := func(d int) *expr { return g.expr(uintT, d, false) }
	atomic := func(array string) {
		c := pick(g, commuting)
		s := &stmt{form: fmt.Sprintf(c.form, array) + ";"}
		for range c.t {
			s.args = append(s.args, u(2))
		}
		b.add(s)
	}

	if g.o.Wide && g.chance(3) {
		name, t := g.name("v"), vectors[kindU64][0]
		op := pick(g, []string{"Add", "Min", "Max", "And", "Or", "Xor", "Exchange"})
		s := &stmt{form: fmt.Sprintf("uint64_t %s = atomic%s(rw_l[gid], $0);", name, op), args: []*expr{g.expr(t, 2, false)}}
		if g.chance(4) {
			s = &stmt{form: fmt.Sprintf("uint64_t %s = atomicCompSwap(rw_l[gid], $0, $1);", name), args: []*expr{g.expr(t, 1, false), g.expr(t, 2, false)}}
		}
		b.add(s)
		g.declare(name, t, true, false, true)
		return
	}

	switch g.IntN(8) {
	case 0, 1:
		if g.slot < outWords-24 {
			b.add(&stmt{form: fmt.Sprintf("out_u[o + %du] = $0;", g.slot), args: []*expr{u(3)}})
			g.slot++
			return
		}
		fallthrough

	case 2:
		b.add(&stmt{form: fmt.Sprintf("out_u[o + %du + ($0 & 3u)] %s $1;", outWords-4, pick(g, []string{"=", "+=", "^="})), args: []*expr{u(2), u(3)}})
	case 3:
		atomic("ctr_u")

	case 4:
		atomic("sh_a")
	case 5:
		c := pick(g, []string{"atomicMin(ctr_i[0], $0);", "atomicMax(ctr_i[1], $0);", "atomicAdd(ctr_i[2], $0);"})
		b.add(&stmt{form: c, args: []*expr{g.expr(intT, 2, false)}})

	case 6:
		name := g.name("v")
		op := pick(g, []string{"Add", "Min", "Max", "And", "Or", "Xor", "Exchange"})
		b.add(&stmt{form: fmt.Sprintf("uint %s = atomic%s(own[gid], $0);", name, op), args: []*expr{u(2)}})
		g.declare(name, uintT, true, false, true)

	default:
		name := g.name("v")
		b.add(&stmt{form: fmt.Sprintf("uint %s = atomicCompSwap(own[gid], $0, $1);", name), args: []*expr{g.expr(uintT, 1, false), u(2)}})
		g.declare(name, uintT, true, false, true)
	}
}

// together is a statement that the whole workgroup does: barriers, and the exchange
// of values between them; subgroup operations.
func (g *gen) together(b *block, f flow) {
	name := g.name("v")
	choices := 6
	if g.o.Subgroup {
		choices = 12
	}

	switch n := g.IntN(choices); n {
	case 0, 1, 2:
		from := pick(g, g.k.shared)
		index := pick(g, []string{"(lid + $0) % N", "N - 1u - lid", "(lid ^ 1u) % N", "(lid * 3u + $0) % N", "$0 % N"})
		uniform := index == "$0 % N"
		s := &stmt{form: fmt.Sprintf("barrier(); %s %s = %s[%s]; barrier();", from.t.name, name, from.array, index)}
		if strings.Contains(index, "$0") {
			s.args = []*expr{g.expr(uintT, 1, uniform)}
		}
		b.add(s)
		if uniform && g.chance(2) {
			g.declare(name, from.t, false, true, false)
		} else {
			g.declare(name, from.t, true, false, true)
		}

	case 3:
		b.add(&stmt{form: fmt.Sprintf("memoryBarrierBuffer(); barrier(); uint %s = ex[wg * N + (lid + $0) %% N]; memoryBarrierBuffer(); barrier();", name), args: []*expr{g.expr(uintT, 1, false)}})
		g.declare(name, uintT, true, false, true)

	case 4:
		b.add(&stmt{form: fmt.Sprintf("barrier(); uint %s = sh_a[$0 & 15u]; barrier();", name), args: []*expr{g.expr(uintT, 1, true)}})
		g.declare(name, uintT, false, true, false)

	case 5:
		if g.chance(3) {
			b.add(&stmt{form: "uint " + name + " = " + g.constant(2) + ";"})
			g.declare(name, uintT, false, true, false)
			return
		}
		// A value that all invocations compute alike.
		t := vectors[kindU32+kind(g.IntN(2))][0]
		b.add(&stmt{form: t.name + " " + name + " = $0;", args: []*expr{g.expr(t, 3, true)}})
		g.declare(name, t, false, true, false)

	default:
		g.subgroup(b, name)
	}
}

// constant is arithmetic on specialisation constants.
func (g *gen) constant(depth int) string {
	if depth == 0 {
		return pick(g, []string{"sc_u", "sc_v", "9u", "0x80000001u", "sc_u", "uint(sc_i)"})
	}
	form := pick(g, []string{"(%s + %s)", "(%s - %s)", "(%s * %s)", "(%s & %s)", "(%s | %s)", "(%s ^ %s)", "(%s << (%s & 7u))", "(%s >> (%s & 7u))", "(%s / (%s | 1u))", "(%s %% (%s | 1u))"})
	return fmt.Sprintf(form, g.constant(depth-1), g.constant(depth-1))
}

// subgroupForm is a subgroup operation. Args: u, i, f, b for uint, int, float,
// bool. Fix, if any, replaces unspecified results.
type subgroupForm struct {
	result          kind
	form, args, fix string
}

var subgroupForms = []subgroupForm{
	{kindU32, "subgroupAdd($0)", "u", ""},
	{kindU32, "subgroupMul($0)", "u", ""},
	{kindU32, "subgroupMin($0)", "u", ""},
	{kindU32, "subgroupMax($0)", "u", ""},
	{kindI32, "subgroupMin($0)", "i", ""},
	{kindI32, "subgroupMax($0)", "i", ""},
	{kindF32, "subgroupMin($0)", "f", ""},
	{kindF32, "subgroupMax($0)", "f", ""},
	{kindU32, "subgroupAnd($0)", "u", ""},
	{kindU32, "subgroupOr($0)", "u", ""},
	{kindU32, "subgroupXor($0)", "u", ""},
	{kindU32, "subgroupInclusiveAdd($0)", "u", ""},
	{kindU32, "subgroupExclusiveAdd($0)", "u", ""},
	{kindI32, "subgroupInclusiveMax($0)", "i", ""},
	{kindU32, "subgroupExclusiveXor($0)", "u", ""},
	{kindU32, "subgroupInclusiveMin($0)", "u", ""},
	{kindBool, "subgroupAll($0)", "b", ""},
	{kindBool, "subgroupAny($0)", "b", ""},
	{kindBool, "subgroupAllEqual($0)", "u", ""},
	{kindU32, "subgroupBallot($0).x", "b", ""},
	{kindU32, "subgroupBallotBitCount(subgroupBallot($0))", "b", ""},
	{kindU32, "subgroupBallotExclusiveBitCount(subgroupBallot($0))", "b", ""},
	{kindBool, "subgroupInverseBallot(subgroupBallot($0))", "b", ""},
	{kindU32, "subgroupBroadcastFirst($0)", "u", ""},
	{kindU32, "subgroupBroadcast($0, 0u)", "u", ""},
	{kindF32, "subgroupBroadcastFirst($0)", "f", ""},
	{kindBool, "subgroupElect()", "", ""},
}

// These need all invocations of a subgroup.
var shuffleForms = []subgroupForm{
	{kindU32, "subgroupShuffle($0, 0u)", "u", ""},
	{kindF32, "subgroupShuffle($0, gl_SubgroupInvocationID & 6u)", "f", ""},
	{kindU32, "subgroupShuffleXor($0, 1u)", "u", ""},
	{kindI32, "subgroupShuffleXor($0, 4u)", "i", ""},
	{kindU32, "subgroupShuffleUp($0, 1u)", "u", "gl_SubgroupInvocationID < 1u"},
	{kindU32, "subgroupShuffleDown($0, 2u)", "u", "gl_SubgroupInvocationID + 2u >= gl_SubgroupSize"},
}

func (g *gen) subgroup(b *block, name string) {
	forms := subgroupForms
	if g.o.Shuffle && g.chance(3) {
		forms = shuffleForms
	}
	f := pick(g, forms)
	b.add(f.stmt(name, func(t *typ) *expr {
		if t == fltT {
			return g.leaf(t, false)
		}
		return g.expr(t, 2, false)
	}))
	g.declare(name, vectors[f.result][0], true, false, true)
}

// stmt declares a variable with the operation's result.
func (f subgroupForm) stmt(name string, arg func(t *typ) *expr) *stmt {
	s := &stmt{form: vectors[f.result][0].name + " " + name + " = " + f.form + ";"}
	if f.fix != "" {
		s.form += " if (" + f.fix + ") " + name + " = 5u;"
	}
	for _, a := range f.args {
		s.args = append(s.args, arg(map[rune]*typ{'u': uintT, 'i': intT, 'f': fltT, 'b': boolT}[a]))
	}
	return s
}
