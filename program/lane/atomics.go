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
	wide, keep := m.size == 8, !i.void
	return func(w *Worker) bool {
		if !m.usable(w) || !m.outOfRange(w) {
			return false
		}
		mem := w.mem[m.slot]
		n := uint64(len(mem))
		for lane, on := range w.mask {
			if on == 0 {
				continue
			}
			off, _ := m.at(w, lane, n)
			if off&(m.size-1) != 0 {
				return m.trap(w, outcome.Misaligned, off, lane)
			}
			if w.checker != nil {
				w.checker.atomic(w, m, o, off, lane)
			}
			if wide {
				old := atomicL(o, atomic64(mem, off), a.at(w, lane), func() uint64 { return b.at(w, lane) })
				if keep {
					w.q[d][lane] = old
				}
				continue
			}
			old := atomicWord(o, atomic32(mem, off), uint32(a.at(w, lane)), func() uint32 { return uint32(b.at(w, lane)) })
			if keep {
				w.r[d][lane] = old
			}
		}
		return true
	}
}

// atomicWord does one operation and returns the value before it. second is the
// comparator of a compare-exchange.
func atomicWord(o spirv.Opcode, p *atomic.Uint32, v uint32, second func() uint32) uint32 {
	switch o {
	case spirv.OpAtomicLoad:
		return p.Load()
	case spirv.OpAtomicStore:
		p.Store(v)
		return 0
	case spirv.OpAtomicExchange:
		return p.Swap(v)
	case spirv.OpAtomicIIncrement:
		return p.Add(1) - 1
	case spirv.OpAtomicIDecrement:
		return p.Add(^uint32(0)) + 1
	case spirv.OpAtomicIAdd:
		return p.Add(v) - v
	case spirv.OpAtomicISub:
		return p.Add(-v) + v
	case spirv.OpAtomicCompareExchange:
		want := second()
		for {
			old := p.Load()
			if old != want || p.CompareAndSwap(old, v) {
				return old
			}
		}
	}
	for {
		old := p.Load()
		if p.CompareAndSwap(old, combine(o, old, v)) {
			return old
		}
	}
}

func combine(o spirv.Opcode, old, v uint32) uint32 {
	switch o {
	case spirv.OpAtomicSMin:
		return uint32(min(int32(old), int32(v)))
	case spirv.OpAtomicUMin:
		return min(old, v)
	case spirv.OpAtomicSMax:
		return uint32(max(int32(old), int32(v)))
	case spirv.OpAtomicUMax:
		return max(old, v)
	case spirv.OpAtomicAnd:
		return old & v
	case spirv.OpAtomicOr:
		return old | v
	case spirv.OpAtomicXor:
		return old ^ v
	}
	return bits32(math.Float32frombits(old) + math.Float32frombits(v)) // OpAtomicFAddEXT
}

func atomicL(o spirv.Opcode, p *atomic.Uint64, v uint64, second func() uint64) uint64 {
	switch o {
	case spirv.OpAtomicLoad:
		return p.Load()
	case spirv.OpAtomicStore:
		p.Store(v)
		return 0
	case spirv.OpAtomicExchange:
		return p.Swap(v)
	case spirv.OpAtomicIIncrement:
		return p.Add(1) - 1
	case spirv.OpAtomicIDecrement:
		return p.Add(^uint64(0)) + 1
	case spirv.OpAtomicIAdd:
		return p.Add(v) - v
	case spirv.OpAtomicISub:
		return p.Add(-v) + v
	case spirv.OpAtomicCompareExchange:
		want := second()
		for {
			old := p.Load()
			if old != want || p.CompareAndSwap(old, v) {
				return old
			}
		}
	}
	for {
		old := p.Load()
		if p.CompareAndSwap(old, combineL(o, old, v)) {
			return old
		}
	}
}

func combineL(o spirv.Opcode, old, v uint64) uint64 {
	switch o {
	case spirv.OpAtomicSMin:
		return uint64(min(int64(old), int64(v)))
	case spirv.OpAtomicUMin:
		return min(old, v)
	case spirv.OpAtomicSMax:
		return uint64(max(int64(old), int64(v)))
	case spirv.OpAtomicUMax:
		return max(old, v)
	case spirv.OpAtomicAnd:
		return old & v
	case spirv.OpAtomicOr:
		return old | v
	case spirv.OpAtomicXor:
		return old ^ v
	}
	return bits64(math.Float64frombits(old) + math.Float64frombits(v))
}

func bits32(x float32) uint32 { return math.Float32bits(x) }
func bits64(x float64) uint64 { return math.Float64bits(x) }
