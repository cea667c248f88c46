package lane

import (
	"capgpu/outcome"
	"capgpu/program/spirv"
)

// xplace is an access by places with its registers bound.
type xplace struct {
	place    operand
	off      uint64
	size     uint64
	memories []*xmem // by the number in a place; nil where the program has none
	inst     *ins
}

func (e *emitter) place(i *ins) *xplace {
	s := e.f.spots[i.aux]
	x := &xplace{place: e.operand(i.args[0]), off: s.off, size: uint64(s.size), inst: i, memories: make([]*xmem, firstShared)}
	for _, v := range e.f.vars {
		if v.class == classBuffer {
			for k := range max(1, v.buffers) {
				n := v.binding + k
				x.memories[1+n] = &xmem{slot: n, binding: uint16(n), size: x.size, inst: i, v: v}
			}
		}
	}
	for _, v := range sharedOf(e.f.vars) {
		x.memories = append(x.memories, &xmem{slot: slotShared, binding: noBinding, start: uint64(v.base), size: x.size, inst: i, v: v})
	}
	return x
}

// at is the memory of a lane, and the offset in it. ok is false after a trap: of an
// access beyond the end, or of a pointer to nothing.
func (x *xplace) at(w *Worker, lane int) (m *xmem, off uint64, ok bool) {
	place := x.place.at(w, lane)
	if n := place >> 56; n < uint64(len(x.memories)) {
		m = x.memories[n]
	}
	if m == nil {
		return nil, 0, w.trap(outcome.OutOfBounds, x.inst.src, noBinding, 0, lane)
	}

	off = place&placeOff + x.off + m.start
	end := uint64(len(w.mem[m.slot]))
	if m.slot == slotShared {
		end = m.start + uint64(m.v.bytes)
	}
	switch {
	case uint64(w.aligned[m.slot])&(x.size-1) != 0:
		return nil, 0, m.trap(w, outcome.Misaligned, off, lane)
	case place&placeOut != 0 || off > end || x.size > end-off:
		return nil, 0, m.trap(w, outcome.OutOfBounds, off, lane)
	}
	return m, off, true
}

// all reports whether no active lane traps.
func (x *xplace) all(w *Worker) bool {
	for lane, on := range w.lanes.mask {
		if on == 0 {
			continue
		}
		if _, _, ok := x.at(w, lane); !ok {
			return false
		}
	}
	return true
}

// loadAt is the step of an iLoadAt.
func (e *emitter) loadAt(i *ins, d int32) step {
	x, wide := e.place(i), i.wide
	if !i.vary {
		return func(w *Worker) bool {
			m, off, ok := x.at(w, firstActive(w))
			if !ok {
				return false
			}
			if w.checker != nil {
				w.checker.readAll(w, m, off)
			}
			v := read(w.mem[m.slot], off, x.size)
			if wide {
				w.sq[d] = v
			} else {
				w.s[d] = uint32(v)
			}
			return true
		}
	}

	return func(w *Worker) bool {
		for lane, on := range w.lanes.mask {
			if on == 0 {
				continue
			}
			m, off, ok := x.at(w, lane)
			if !ok {
				return false
			}
			if w.checker != nil {
				w.checker.read(w, m, off, lane)
			}
			v := read(w.mem[m.slot], off, x.size)
			if wide {
				w.q[d][lane] = v
			} else {
				w.r[d][lane] = uint32(v)
			}
		}
		return true
	}
}

// storeAt is the step of an iStoreAt. Nothing is stored if a lane traps.
func (e *emitter) storeAt(i *ins) step {
	x, v := e.place(i), e.operand(i.args[1])
	return func(w *Worker) bool {
		if !x.all(w) {
			return false
		}
		for lane, on := range w.lanes.mask {
			if on == 0 {
				continue
			}
			m, off, _ := x.at(w, lane)
			n := v.at(w, lane)
			if w.checker != nil {
				w.checker.write(w, m, off, n, lane)
			}
			write(w.mem[m.slot], off, x.size, n)
		}
		return true
	}
}

// atomicAt is the step of an iAtomicAt.
func (e *emitter) atomicAt(i *ins, d int32) step {
	x := e.place(i)
	var a, b operand
	if len(i.args) > 1 {
		a = e.operand(i.args[1])
	}
	if len(i.args) > 2 {
		b = e.operand(i.args[2])
	}
	o, keep := spirv.Opcode(i.imm), !i.void
	return func(w *Worker) bool {
		if !x.all(w) {
			return false
		}
		for lane, on := range w.lanes.mask {
			if on == 0 {
				continue
			}
			m, off, _ := x.at(w, lane)
			if !m.atomic(w, o, off, lane, a, b, d, keep) {
				return false
			}
		}
		return true
	}
}
