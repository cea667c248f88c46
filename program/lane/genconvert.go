package lane

import (
	"capgpu/program/lane/vec"
	"capgpu/program/spirv"
)

func (g *gen) convert(i *ins) step {
	o, from, to := spirv.Opcode(i.imm>>16), int(i.imm>>8&0xFF), int(i.imm&0xFF)
	switch {
	case from == 64 && to == 64:
		if f, ok := vec.ConvertL(o); ok {
			return g.op1L(f)
		}

	case from == 64:
		if f, ok := vec.Narrow(o, to); ok {
			return g.narrow(f)
		}

	case to == 64:
		if f, ok := vec.Widen(o, from); ok {
			return g.widen(f)
		}

	default:
		if f, ok := vec.Convert(o, from, to); ok {
			return g.op1(f)
		}
	}

	return nil
}

// splitFloat has one of the two results of Modf and Frexp; the other goes to an
// unused register.
func (g *gen) splitFloat(i *ins) step {
	d, a, second := g.dst, g.reg(0), i.imm == 1
	wide := g.f.ins[i.args[0]].wide
	switch {
	case i.op == iModf && wide:
		return func(w *Worker) bool {
			first, last := w.q[d], w.spareL
			if second {
				first, last = last, first
			}
			vec.ModfL(first, last, w.q[a])
			return true
		}

	case i.op == iModf:
		return func(w *Worker) bool {
			first, last := w.r[d], w.spare
			if second {
				first, last = last, first
			}
			vec.Modf(first, last, w.r[a])
			return true
		}

	case wide && second:
		return func(w *Worker) bool { vec.FrexpL(w.spareL, w.r[d], w.q[a]); return true }
	case wide:
		return func(w *Worker) bool { vec.FrexpL(w.q[d], w.spare, w.q[a]); return true }

	case second:
		return func(w *Worker) bool { vec.Frexp(w.spare, w.r[d], w.r[a]); return true }
	}

	return func(w *Worker) bool { vec.Frexp(w.r[d], w.spare, w.r[a]); return true }
}
