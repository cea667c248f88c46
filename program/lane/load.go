package lane

import (
	"encoding/binary"

	"capgpu/program/lane/vec"
)

// read is one scalar of memory. Every element is read once.
func read(mem []byte, off, size uint64) uint64 {
	b := mem[off:]
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func write(mem []byte, off, size, v uint64) {
	b := mem[off:]
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

// load is the step of an iLoad. There are quick ways for the usual addresses; all
// others, and everything that is out of range, go lane by lane.
func (e *emitter) load(i *ins, d int32) step {
	m := e.access(i)
	if e.f.mems[i.aux].v.class == classPrivate {
		return e.loadPrivate(m, i, d)
	}

	wide := i.wide
	if m.fixed {
		return e.loadScalar(m, wide, d)
	}
	if e.k.check {
		return func(w *Worker) bool { return m.usable(w) && m.loadLanes(w, d, wide) }
	}

	words := m.size == 4 && m.off%4 == 0
	for k := range m.terms {
		words = words && m.terms[k].stride%4 == 0
	}

	switch {
	case words && m.rows:
		return func(w *Worker) bool {
			mem := w.mem[m.slot]
			if a, ok := m.rowsAt(w, mem); ok && w.aligned[m.slot]&3 == 0 && vec.LoadAffine32(w.r[d], mem, a) {
				return true
			}
			if a, lo, hi, ok := m.part(w); ok && w.aligned[m.slot]&3 == 0 && vec.LoadAffine32(w.r[d][lo:hi], mem, a) {
				return true
			}
			return m.usable(w) && m.loadLanes(w, d, false)
		}

	case m.rows && m.size < 4:
		load := vec.LoadAffine8
		if m.size == 2 {
			load = vec.LoadAffine16
		}
		return func(w *Worker) bool {
			mem := w.mem[m.slot]
			if a, ok := m.rowsAt(w, mem); ok && uint64(w.aligned[m.slot])&(m.size-1) == 0 && load(w.r[d], mem, a) {
				return true
			}
			return m.usable(w) && m.loadLanes(w, d, false)
		}

	case words && m.vector >= 0:
		t := &m.terms[m.vector]
		step, bound, reg := t.stride/4, t.bound, t.reg[0]
		return func(w *Worker) bool {
			mem := w.words[m.slot]
			at, ok := m.scalars(w)
			if at/4 > uint64(len(mem)) {
				ok = false
			}
			if ok && w.aligned[m.slot]&3 == 0 && m.gather(w, w.r[d], w.r[reg], mem[at/4:], step, bound) {
				return true
			}
			return m.usable(w) && m.loadLanes(w, d, false)
		}
	}

	return func(w *Worker) bool { return m.usable(w) && m.loadLanes(w, d, wide) }
}

func (e *emitter) loadScalar(m *xmem, wide bool, d int32) step {
	size, slot := m.size, m.slot
	return func(w *Worker) bool {
		mem := w.mem[slot]
		off, ok := m.scalars(w)
		if uint64(w.aligned[slot])&(size-1) != 0 && !m.usable(w) {
			return false
		}
		if !ok || off > uint64(len(mem)) || size > uint64(len(mem))-off {
			return m.outOfRange(w)
		}

		v := read(mem, off, size)
		if w.checker != nil {
			w.checker.readAll(w, m, off)
		}

		if wide {
			w.sq[d] = v
		} else {
			w.s[d] = uint32(v)
		}

		return true
	}
}

// loadLanes goes lane by lane.
func (m *xmem) loadLanes(w *Worker, d int32, wide bool) bool {
	mem := w.mem[m.slot]
	n := uint64(len(mem))
	for lane, on := range w.lanes.mask {
		if on == 0 {
			continue
		}

		off, ok := m.at(w, lane, n)
		if !ok {
			return m.outOfRange(w)
		}
		if w.checker != nil {
			w.checker.read(w, m, off, lane)
		}

		v := read(mem, off, m.size)
		if wide {
			w.q[d][lane] = v
		} else {
			w.r[d][lane] = uint32(v)
		}
	}

	return true
}

// gather loads words at idx × step. It returns false if an index of an active lane
// may be out of range.
func (m *xmem) gather(w *Worker, dst, idx, mem []uint32, step, bound uint64) bool {
	limit := uint64(0) // of the index
	switch {
	case step == 1:
		limit = uint64(len(mem))
	case step == 0:
		if len(mem) > 0 {
			limit = 1 << 32
		}
	case len(mem) > 0:
		limit = (uint64(len(mem))-1)/step + 1
	}

	limit = min(limit, bound)
	if step == 1 {
		b := bytesOfWords(mem[:limit])
		if w.lanes.full {
			return vec.Gather32(dst, idx, b) < 0
		}
		return vec.GatherMask(dst, idx, w.lanes.mask, b) < 0
	}

	mask := w.lanes.mask
	for i := range dst {
		at := uint64(idx[i])
		if at >= limit {
			if mask[i] != 0 {
				return false
			}
			continue
		}
		dst[i] = mem[at*step]
	}

	return true
}
