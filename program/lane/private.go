package lane

import (
	"capgpu/outcome"
	"capgpu/program/lane/vec"
)

// Private memory: local variables that are indexed dynamically. Slot s of lane i
// is at s × lanes + i, so that a slot of all lanes is a register.

func (e *emitter) loadPrivate(m *xmem, i *ins, d int32) step {
	wide := i.wide
	file := e.f.mems[i.aux].v.wide
	if m.fixed {
		return func(w *Worker) bool {
			s, ok := m.scalars(w)
			if !ok {
				return m.privateOut(w)
			}
			n := uint64(w.k.lanes)
			switch {
			case wide:
				copy(w.q[d], w.privL[s*n:])
			case file:
				narrowCopy(w.r[d], w.privL[s*n:])
			default:
				copy(w.r[d], w.priv[s*n:])
			}
			return true
		}
	}

	return func(w *Worker) bool {
		n := uint64(w.k.lanes)
		for lane, on := range w.lanes.mask {
			if on == 0 {
				continue
			}
			s, ok := m.at(w, lane, 1<<62)
			if !ok {
				return m.privateOut(w)
			}
			switch p := s*n + uint64(lane); {
			case wide:
				w.q[d][lane] = w.privL[p]
			case file:
				w.r[d][lane] = uint32(w.privL[p])
			default:
				w.r[d][lane] = w.priv[p]
			}
		}

		return true
	}
}

func narrowCopy(dst []uint32, src []uint64) {
	for i := range dst {
		dst[i] = uint32(src[i])
	}
}

func (e *emitter) storePrivate(m *xmem, v operand) step {
	file := e.f.mems[m.inst.aux].v.wide
	if m.fixed && !file {
		return func(w *Worker) bool {
			s, ok := m.scalars(w)
			if !ok {
				return m.privateOut(w)
			}
			n := uint64(w.k.lanes)
			slot := w.priv[s*n : s*n+n]
			switch {
			case w.lanes.pending == 0 && v.vary:
				copy(slot, w.r[v.reg])
			case w.lanes.pending == 0:
				vec.Splat(slot, w.s[v.reg])
			default:
				vec.Blend(slot, v.vector(w), w.lanes.mask)
			}
			return true
		}
	}

	return func(w *Worker) bool {
		n := uint64(w.k.lanes)
		for lane, on := range w.lanes.mask {
			if on == 0 {
				continue
			}
			s, ok := m.at(w, lane, 1<<62)
			if !ok {
				return m.privateOut(w)
			}
			if p := s*n + uint64(lane); file {
				w.privL[p] = v.at(w, lane)
			} else {
				w.priv[p] = uint32(v.at(w, lane))
			}
		}

		return true
	}
}

// privateOut traps the first active lane with an index out of range. The offset is in
// bytes, as if the variable were in shared memory.
func (m *xmem) privateOut(w *Worker) bool {
	for lane, on := range w.lanes.mask {
		if on == 0 {
			continue
		}
		if _, ok := m.at(w, lane, 1<<62); !ok {
			return w.trap(outcome.OutOfBounds, m.inst.src, m.binding, m.bytesAt(w, lane), lane)
		}
	}
	return true
}

// bytesAt is the offset of a lane in bytes. No term of private memory is affine.
func (m *xmem) bytesAt(w *Worker, lane int) uint64 {
	off := m.bytes
	for k := range m.terms {
		t := &m.terms[k]
		idx := w.s[t.reg[0]]
		if t.kind == termVector {
			idx = w.r[t.reg[0]][lane]
		}
		off += uint64(idx) * t.bytes
	}
	return off
}

// clearVar makes a variable in private memory zero on active lanes.
func (e *emitter) clearVar(i *ins) step {
	v := e.f.vars[i.aux]
	first, last, wide := int(v.base), int(v.base+v.bytes), v.wide
	return func(w *Worker) bool {
		n := w.k.lanes
		switch {
		case w.lanes.pending == 0 && wide:
			clear(w.privL[first*n : last*n])
		case w.lanes.pending == 0:
			clear(w.priv[first*n : last*n])
		default:
			for s := first; s < last; s++ {
				if wide {
					blendSL(w.privL[s*n:(s+1)*n], 0, w.lanes.mask)
				} else {
					vec.BlendS(w.priv[s*n:(s+1)*n], 0, w.lanes.mask)
				}
			}
		}

		return true
	}
}

// blendSL is v on the lanes of mask.
func blendSL(dst []uint64, v uint64, mask []uint32) {
	for i, on := range mask {
		if on != 0 {
			dst[i] = v
		}
	}
}
