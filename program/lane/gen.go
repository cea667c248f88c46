package lane

import (
	"capgpu/program/lane/vec"
	"capgpu/program/spirv"
)

// step is one instruction, ready to run: its operation and its registers are
// bound. It returns false if a lane trapped.
type step func(w *Worker) bool

// gen makes steps of instructions without side effects.
type gen struct {
	f      *fn
	reg    func(k int) int32 // register of argument k
	scalar func(k int) bool  // argument k is a scalar, and the result a vector
	dst    int32
}

func (g *gen) isScalar(k int) bool { return g.scalar != nil && g.scalar(k) }

// hasScalarForm reports whether a varying instruction of two operands may have one
// of them as a scalar.
func hasScalarForm(i *ins, wideArgs bool) bool {
	switch {
	case i.op >= glslBase:
		if wideArgs {
			return false
		}
		_, _, ok := vec.GLSL2S(spirv.GLSL(i.op - glslBase))
		return ok
	case !wideArgs:
		_, _, ok := vec.BinaryS(spirv.Opcode(i.op))
		return ok
	case i.wide:
		_, _, ok := vec.BinaryLS(spirv.Opcode(i.op))
		return ok
	}

	_, _, ok := vec.CompareLS(spirv.Opcode(i.op))
	return ok
}

// pure is the step of an instruction; nil if there is none.
func (g *gen) pure(i *ins) step {
	if i.op >= iNone {
		return g.own(i)
	}

	wide := len(i.args) > 0 && g.f.ins[i.args[0]].wide
	switch len(i.args) {
	case 1:
		return g.unary(i, wide)
	case 2:
		return g.binary(i, wide)
	case 3:
		return g.ternary(i)
	case 4:
		if i.op == op(spirv.OpBitFieldInsert) && !wide {
			d, a, b, c, e := g.dst, g.reg(0), g.reg(1), g.reg(2), g.reg(3)
			return func(w *Worker) bool {
				vec.BitFieldInsert(w.r[d], w.r[a], w.r[b], w.r[c], w.r[e])
				return true
			}
		}
	}

	return nil
}

func (g *gen) op1(f vec.Op1) step {
	d, a := g.dst, g.reg(0)
	return func(w *Worker) bool { f(w.r[d], w.r[a]); return true }
}

func (g *gen) op1L(f vec.Op1L) step {
	d, a := g.dst, g.reg(0)
	return func(w *Worker) bool { f(w.q[d], w.q[a]); return true }
}

func (g *gen) narrow(f vec.OpNarrow) step {
	d, a := g.dst, g.reg(0)
	return func(w *Worker) bool { f(w.r[d], w.q[a]); return true }
}

func (g *gen) widen(f vec.OpWiden) step {
	d, a := g.dst, g.reg(0)
	return func(w *Worker) bool { f(w.q[d], w.r[a]); return true }
}

func (g *gen) op2(f vec.Op2) step {
	d, a, b := g.dst, g.reg(0), g.reg(1)
	return func(w *Worker) bool { f(w.r[d], w.r[a], w.r[b]); return true }
}

func (g *gen) op2L(f vec.Op2L) step {
	d, a, b := g.dst, g.reg(0), g.reg(1)
	return func(w *Worker) bool { f(w.q[d], w.q[a], w.q[b]); return true }
}

// op2S takes the vector first.
func (g *gen) op2S(vs, sv vec.Op2S) step {
	d, a, s := g.dst, g.reg(0), g.reg(1)
	if g.isScalar(0) {
		vs, a, s = sv, s, a
	}
	return func(w *Worker) bool { vs(w.r[d], w.r[a], w.s[s]); return true }
}

func (g *gen) unary(i *ins, wide bool) step {
	if i.op >= glslBase {
		set := spirv.GLSL(i.op - glslBase)
		if wide {
			if f, ok := vec.GLSL1L(set); ok {
				return g.op1L(f)
			}
		} else if f, ok := vec.GLSL1(set); ok {
			return g.op1(f)
		}
		return nil
	}

	o := spirv.Opcode(i.op)
	switch {
	case wide && i.wide:
		if f, ok := vec.UnaryL(o); ok {
			return g.op1L(f)
		}
	case wide:
		if f, ok := vec.Narrow(o, 32); ok {
			return g.narrow(f)
		}
	default:
		if f, ok := vec.Unary(o); ok {
			return g.op1(f)
		}
	}

	return nil
}

func (g *gen) binary(i *ins, wide bool) step {
	mixed := g.isScalar(0) || g.isScalar(1)
	if i.op >= glslBase {
		set := spirv.GLSL(i.op - glslBase)
		if wide && set == spirv.GLSLLdexp {
			d, a, b := g.dst, g.reg(0), g.reg(1)
			return func(w *Worker) bool { vec.LdexpL(w.q[d], w.q[a], w.r[b]); return true }
		}

		if wide {
			if f, ok := vec.GLSL2L(set); ok && i.wide {
				return g.op2L(f)
			}
			return nil
		}

		if mixed {
			if vs, sv, ok := vec.GLSL2S(set); ok {
				return g.op2S(vs, sv)
			}
			return nil
		}

		if f, ok := vec.GLSL2(set); ok {
			return g.op2(f)
		}

		return nil
	}

	o := spirv.Opcode(i.op)
	switch {
	case !wide && mixed:
		if vs, sv, ok := vec.BinaryS(o); ok {
			return g.op2S(vs, sv)
		}

	case !wide:
		if !i.vary {
			if s := g.fast(o); s != nil {
				return s
			}
		}
		if f, ok := vec.Binary(o); ok {
			return g.op2(f)
		}

	case i.wide && mixed:
		if vs, sv, ok := vec.BinaryLS(o); ok {
			d, a, s := g.dst, g.reg(0), g.reg(1)
			if g.isScalar(0) {
				vs, a, s = sv, s, a
			}
			return func(w *Worker) bool { vs(w.q[d], w.q[a], w.sq[s]); return true }
		}

	case i.wide:
		if f, ok := vec.BinaryL(o); ok {
			return g.op2L(f)
		}

	case mixed:
		if vs, sv, ok := vec.CompareLS(o); ok {
			d, a, s := g.dst, g.reg(0), g.reg(1)
			if g.isScalar(0) {
				vs, a, s = sv, s, a
			}
			return func(w *Worker) bool { vs(w.r[d], w.q[a], w.sq[s]); return true }
		}

	default:
		if f, ok := vec.CompareL(o); ok {
			d, a, b := g.dst, g.reg(0), g.reg(1)
			return func(w *Worker) bool { f(w.r[d], w.q[a], w.q[b]); return true }
		}
	}

	return nil
}

// fast are the scalar operations that loop counters use.
func (g *gen) fast(o spirv.Opcode) step {
	d, a, b := g.dst, g.reg(0), g.reg(1)
	switch o {
	case spirv.OpIAdd:
		return func(w *Worker) bool { w.s[d] = w.s[a] + w.s[b]; return true }

	case spirv.OpISub:
		return func(w *Worker) bool { w.s[d] = w.s[a] - w.s[b]; return true }
	case spirv.OpIMul:
		return func(w *Worker) bool { w.s[d] = w.s[a] * w.s[b]; return true }

	case spirv.OpShiftLeftLogical:
		return func(w *Worker) bool { w.s[d] = w.s[a] << (w.s[b] & 31); return true }
	case spirv.OpShiftRightLogical:
		return func(w *Worker) bool { w.s[d] = w.s[a] >> (w.s[b] & 31); return true }

	case spirv.OpBitwiseAnd:
		return func(w *Worker) bool { w.s[d] = w.s[a] & w.s[b]; return true }
	case spirv.OpULessThan:
		return func(w *Worker) bool { w.s[d] = boolean(w.s[a] < w.s[b]); return true }

	case spirv.OpSLessThan:
		return func(w *Worker) bool { w.s[d] = boolean(int32(w.s[a]) < int32(w.s[b])); return true }
	case spirv.OpUGreaterThan:
		return func(w *Worker) bool { w.s[d] = boolean(w.s[a] > w.s[b]); return true }

	case spirv.OpSGreaterThan:
		return func(w *Worker) bool { w.s[d] = boolean(int32(w.s[a]) > int32(w.s[b])); return true }
	case spirv.OpIEqual:
		return func(w *Worker) bool { w.s[d] = boolean(w.s[a] == w.s[b]); return true }

	case spirv.OpINotEqual:
		return func(w *Worker) bool { w.s[d] = boolean(w.s[a] != w.s[b]); return true }
	}

	return nil
}

func boolean(b bool) uint32 {
	if b {
		return 1<<32 - 1
	}
	return 0
}

func (g *gen) ternary(i *ins) step {
	d, a, b, c := g.dst, g.reg(0), g.reg(1), g.reg(2)
	if i.op == op(spirv.OpSelect) {
		if i.wide {
			return func(w *Worker) bool { vec.SelectL(w.q[d], w.r[a], w.q[b], w.q[c]); return true }
		}
		return func(w *Worker) bool { vec.Select(w.r[d], w.r[a], w.r[b], w.r[c]); return true }
	}

	if i.wide {
		if i.op < glslBase {
			return nil
		}
		f, ok := vec.GLSL3L(spirv.GLSL(i.op - glslBase))
		if !ok {
			return nil
		}
		return func(w *Worker) bool { f(w.q[d], w.q[a], w.q[b], w.q[c]); return true }
	}

	var f vec.Op3
	var ok bool
	if i.op >= glslBase {
		f, ok = vec.GLSL3(spirv.GLSL(i.op - glslBase))
	} else {
		f, ok = vec.Ternary(spirv.Opcode(i.op))
	}

	if !ok {
		return nil
	}

	return func(w *Worker) bool { f(w.r[d], w.r[a], w.r[b], w.r[c]); return true }
}

// own are our own operations.
func (g *gen) own(i *ins) step {
	d := g.dst
	switch i.op {
	case iMulAdd:
		a, b, c := g.reg(0), g.reg(1), g.reg(2)
		switch {
		case g.isScalar(0):
			return func(w *Worker) bool { vec.MulAddS(w.r[d], w.r[b], w.s[a], w.r[c]); return true }
		case g.isScalar(1):
			return func(w *Worker) bool { vec.MulAddS(w.r[d], w.r[a], w.s[b], w.r[c]); return true }
		}
		return func(w *Worker) bool { vec.MulAdd(w.r[d], w.r[a], w.r[b], w.r[c]); return true }

	case iHigh:
		if i.wide {
			if f, ok := vec.HighL(spirv.Opcode(i.imm)); ok {
				return g.op2L(f)
			}
		} else if f, ok := vec.High(spirv.Opcode(i.imm)); ok {
			return g.op2(f)
		}

	case iUnpack:
		if f, ok := vec.Unpack(spirv.GLSL(i.imm>>8), int(i.imm&0xFF)); ok {
			return g.op1(f)
		}

	case iPack4:
		if f, ok := vec.Pack4(spirv.GLSL(i.imm)); ok {
			a, b, c, e := g.reg(0), g.reg(1), g.reg(2), g.reg(3)
			return func(w *Worker) bool { f(w.r[d], w.r[a], w.r[b], w.r[c], w.r[e]); return true }
		}

	case iModf, iFrexp:
		return g.splitFloat(i)
	case iLow:
		if f, ok := vec.Narrow(spirv.OpUConvert, 32); ok {
			return g.narrow(f)
		}

	case iHighHalf:
		return g.narrow(vec.HighWord)
	case iJoin:
		a, b := g.reg(0), g.reg(1)
		return func(w *Worker) bool { vec.Join(w.q[d], w.r[a], w.r[b]); return true }

	case iExtend:
		if f, ok := vec.Convert(spirv.OpSConvert, int(i.imm), 32); ok {
			return g.op1(f)
		}

	case iConvert:
		return g.convert(i)
	}

	return nil
}
