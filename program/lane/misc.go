package lane

import (
	"capgpu/outcome"
	"capgpu/program/lane/vec"
)

// barrier is the step of a barrier of the workgroup: all lanes that have not
// returned must be there. Memory needs nothing, because lanes run in lock-step.
func (e *emitter) barrier(i *ins) step {
	return func(w *Worker) bool {
		if w.checker != nil {
			w.checker.barrier(w, i.src)
		}
		if w.lanes.pending != 0 {
			return w.trap(outcome.DivergentBarrier, i.src, noBinding, 0, vec.First(w.lanes.mask))
		}
		return true
	}
}

// checkZero traps on active lanes with a divisor of zero.
func (e *emitter) checkZero(i *ins) step {
	v := e.operand(i.args[0])
	return func(w *Worker) bool {
		var mask []uint32
		if !w.lanes.full {
			mask = w.lanes.mask
		}

		lane := -1
		switch {
		case v.vary && v.wide:
			lane = vec.AnyZeroL(w.q[v.reg], mask)
		case v.vary:
			lane = vec.AnyZero(w.r[v.reg], mask)
		case v.at(w, 0) == 0:
			lane = firstActive(w)
		}

		if lane < 0 {
			return true
		}

		return w.trap(outcome.DivideByZero, i.src, noBinding, 0, lane)
	}
}

// checkIndex traps on active lanes with an index of a part that a value does not have.
func (e *emitter) checkIndex(i *ins) step {
	v, n, bytes := e.operand(i.args[0]), i.imm, uint64(i.aux)
	return func(w *Worker) bool {
		if !v.vary && v.at(w, 0) < n {
			return true
		}
		for lane, on := range w.lanes.mask {
			if at := v.at(w, lane); on != 0 && at >= n {
				return w.trap(outcome.OutOfBounds, i.src, noBinding, at*bytes, lane)
			}
		}
		return true
	}
}

// push reads the launch's inline block.
func (e *emitter) push(i *ins, d int32) step {
	off, size, wide := i.imm, uint64(i.aux), i.wide
	return func(w *Worker) bool {
		mem := w.mem[slotInline]
		if off+size > uint64(len(mem)) {
			return w.trap(outcome.OutOfBounds, i.src, noBinding, off, firstActive(w))
		}
		v := read(mem, off, size)
		if wide {
			w.sq[d] = v
		} else {
			w.s[d] = uint32(v)
		}
		return true
	}
}

// arrayLength is the number of a runtime array's elements in the binding.
func (e *emitter) arrayLength(i *ins, d int32) step {
	off, stride := i.imm>>32, max(1, i.imm&(1<<32-1))
	slot, _ := e.f.isConst(i.args[0])
	return func(w *Worker) bool {
		n := uint64(len(w.mem[slot]))
		w.s[d] = 0
		if n > off {
			w.s[d] = uint32(min((n-off)/stride, 1<<32-1))
		}
		return true
	}
}

// foldTerms adds constant indices that are in range to the offset.
func (f *fn) foldTerms() {
	for n := range f.blocks {
		for _, v := range f.blocks[n].ins {
			i := &f.ins[v]
			if i.op != iLoad && i.op != iStore && i.op != iAtomic {
				continue
			}

			m := &f.mems[i.aux]
			var terms []term
			var args []val
			for _, t := range m.terms {
				c, ok := f.isConst(i.args[t.at])
				if ok && !t.affine && (t.bound == 0 || c < uint64(t.bound)) {
					m.off += c * uint64(t.stride)
					m.bytes += c * uint64(t.bytes)
					continue
				}
				n := int32(1)
				if t.affine {
					n = 4
				}
				operands := i.args[t.at : t.at+n]
				t.at = int32(len(args))
				args = append(args, operands...)
				terms = append(terms, t)
			}

			operands := i.args[m.args:]
			m.terms, m.args = terms, int32(len(args))
			i.args = append(args, operands...)
		}
	}
}
