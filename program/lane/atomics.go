package lane

import (
	"math"
	"sync/atomic"

	"capgpu/outcome"
	"capgpu/program/spirv"
)

// atomic is the step of an atomic instruction. Lanes go in ascending order. Other
// workers, and the client, may work on the same word.
func (e *emitter) atomic(i *ins, d int32) step {
	m := e.access(i)
	o := spirv.Opcode(i.imm)
	first := int(e.f.mems[i.aux].args)
	var a, b operand
	if len(i.args) > first {
		a = e.operand(i.args[first])
	}
	if len(i.args) > first+1 {
		b = e.operand(i.args[first+1])
	}

	keep := !i.void
	return func(w *Worker) bool {
		if !m.usable(w) || !m.outOfRange(w) {
			return false
		}

		n := uint64(len(w.mem[m.slot]))
		for lane, on := range w.lanes.mask {
			if on == 0 {
				continue
			}
			off, _ := m.at(w, lane, n)
			if !m.atomic(w, o, off, lane, a, b, d, keep) {
				return false
			}
		}

		return true
	}
}

// atomic does the operation of a lane at an offset that is in range, and keeps the old
// value in register d.
func (m *xmem) atomic(w *Worker, o spirv.Opcode, off uint64, lane int, a, b operand, d int32, keep bool) bool {
	if off&(m.size-1) != 0 {
		return m.trap(w, outcome.Misaligned, off, lane)
	}
	if w.checker != nil {
		w.checker.atomic(w, m, o, off, lane)
	}

	mem := w.mem[m.slot]
	if m.size == 8 {
		old := atomicLong(o, atomic64(mem, off), a.at(w, lane), func() uint64 { return b.at(w, lane) })
		if keep {
			w.q[d][lane] = old
		}
		return true
	}

	old := atomicWord(o, atomic32(mem, off), uint32(a.at(w, lane)), func() uint32 { return uint32(b.at(w, lane)) })
	if keep {
		w.r[d][lane] = old
	}
	return true
}

// atomicWord does one operation and returns the old value. second is the comparator
// of a compare-exchange.
func atomicWord(o spirv.Opcode, p *atomic.Uint32, v uint32, second func() uint32) uint32 {
	for {
		old := p.Load()
		next, write := combine[int32](o, old, v, second, addFloats)
		if !write || p.CompareAndSwap(old, next) {
			return old
		}
	}
}

// atomicLong is atomicWord for 64 bits.
func atomicLong(o spirv.Opcode, p *atomic.Uint64, v uint64, second func() uint64) uint64 {
	for {
		old := p.Load()
		next, write := combine[int64](o, old, v, second, addDoubles)
		if !write || p.CompareAndSwap(old, next) {
			return old
		}
	}
}

// combine returns the value that an operation leaves in memory, and whether it writes
// it. S is W with a sign.
func combine[S int32 | int64, W uint32 | uint64](o spirv.Opcode, old, v W, second func() W, addFloat func(a, b W) W) (next W, write bool) {
	switch o {
	case spirv.OpAtomicLoad:
		return old, false

	case spirv.OpAtomicStore, spirv.OpAtomicExchange:
		return v, true
	case spirv.OpAtomicCompareExchange:
		return v, old == second()

	case spirv.OpAtomicIIncrement:
		return old + 1, true
	case spirv.OpAtomicIDecrement:
		return old - 1, true

	case spirv.OpAtomicIAdd:
		return old + v, true
	case spirv.OpAtomicISub:
		return old - v, true

	case spirv.OpAtomicSMin:
		return W(min(S(old), S(v))), true
	case spirv.OpAtomicUMin:
		return min(old, v), true

	case spirv.OpAtomicSMax:
		return W(max(S(old), S(v))), true
	case spirv.OpAtomicUMax:
		return max(old, v), true

	case spirv.OpAtomicAnd:
		return old & v, true
	case spirv.OpAtomicOr:
		return old | v, true

	case spirv.OpAtomicXor:
		return old ^ v, true
	}
	return addFloat(old, v), true // OpAtomicFAddEXT
}

func addFloats(a, b uint32) uint32 {
	return math.Float32bits(math.Float32frombits(a) + math.Float32frombits(b))
}

func addDoubles(a, b uint64) uint64 {
	return math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b))
}

func isAtomic(o spirv.Opcode) bool {
	return o >= spirv.OpAtomicLoad && o <= spirv.OpAtomicXor || o == spirv.OpAtomicFAddEXT
}

func (l *lowerer) atomic(in *spirv.Inst) {
	p := l.pointer(in.Arg(0))
	t := l.typ(p.typ)
	if t.kind != typeInt && t.kind != typeFloat || t.width < 32 || p.v.class != classBuffer && p.v.class != classShared {
		fail(in, "E-GPU-4060", "an atomic on what it cannot work on")
	}

	var operands []val
	switch in.Op {
	case spirv.OpAtomicLoad, spirv.OpAtomicIIncrement, spirv.OpAtomicIDecrement:
	case spirv.OpAtomicStore:
		operands = []val{l.scalar(in.Arg(3))}
	case spirv.OpAtomicCompareExchange: // value, comparator
		operands = []val{l.scalar(in.Arg(4)), l.scalar(in.Arg(5))}
	default:
		operands = []val{l.scalar(in.Arg(3))}
	}

	for _, v := range operands {
		if l.f.ins[v].wide != t.wide {
			fail(in, "SPV-2901", "an atomic with an operand of another type")
		}
	}

	i := ins{op: iAtomic, imm: uint64(in.Op), wide: t.wide, void: in.Op == spirv.OpAtomicStore}
	if p.base != 0 {
		i.op, i.aux = iAtomicAt, l.spot(t, p.off)
		i.args = l.f.take(append([]val{l.start(p)}, operands...))
	} else {
		i.aux, i.args = l.access(p, t, p.off, in.Op != spirv.OpAtomicLoad, operands...)
	}
	v := l.effect(i)
	if in.Result != 0 {
		l.fr.vals[in.Result] = []val{v}
	}
}
