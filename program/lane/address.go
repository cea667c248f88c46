package lane

import (
	"capgpu/outcome"
	"capgpu/program/lane/vec"
)

// xterm is a term of an address with its registers bound.
type xterm struct {
	stride uint64
	bytes  uint64 // private memory: the stride in bytes
	bound  uint64 // 1<<32 where only the end of the memory bounds
	reg    [4]int32
	kind   xtermKind
}

type xtermKind uint8

const (
	termScalar xtermKind = iota
	termAffine
	termVector
)

// xmem is an access with its registers bound.
type xmem struct {
	slot    int
	binding uint16
	off     uint64
	start   uint64 // of the variable, which traps count from
	size    uint64
	bytes   uint64 // private memory: off in bytes within the variable
	terms   []xterm
	fixed   bool // no term varies
	rows    bool // no term is a vector, and the strides are small
	quick   bool // there is one term, affine and bounded by the memory
	vector  int  // the only term that is a vector, if the others are scalars; else -1
	inst    *ins
	v       *variable
}

func (e *emitter) access(i *ins) *xmem {
	m := &e.f.mems[i.aux]
	x := &xmem{off: m.off, bytes: m.bytes, size: uint64(m.size), binding: noBinding, fixed: true, rows: true, vector: -1, inst: i, v: m.v}
	switch m.v.class {
	case classBuffer:
		x.slot, x.binding = m.v.binding, uint16(m.v.binding)
	case classShared:
		x.slot = slotShared
		x.start = uint64(m.v.base)
		x.off += x.start
	case classPush:
		x.slot = slotInline
	case classPrivate:
		x.start = uint64(m.v.base)
		x.off += x.start
	}

	vectors, affines := 0, 0
	for k, t := range m.terms {
		xt := xterm{stride: uint64(t.stride), bytes: uint64(t.bytes), bound: uint64(t.bound)}
		if t.bound == 0 {
			xt.bound = 1 << 32
		}

		switch {
		case t.affine:
			xt.kind = termAffine
			for j := range 4 {
				v := i.args[int(t.at)+j]
				if v == 0 {
					v = e.f.word(0)
				}
				xt.reg[j] = e.reg(v)
			}
			x.fixed = false
			affines++

		case e.f.varying(i.args[t.at]):
			xt.kind = termVector
			xt.reg[0] = e.reg(i.args[t.at])
			x.fixed, x.rows = false, false
			x.vector = k
			vectors++

		default:
			xt.reg[0] = e.reg(i.args[t.at])
		}

		if t.stride > 1<<24 {
			x.rows = false
		}

		x.terms = append(x.terms, xt)
	}

	x.quick = x.rows && len(x.terms) == 1 && affines == 1 && x.terms[0].bound == 1<<32
	if vectors != 1 || affines > 0 {
		x.vector = -1
	}

	return x
}

// at is the offset of a lane. It also reports whether its indices are in range and
// the access is within n bytes.
func (m *xmem) at(w *Worker, lane int, n uint64) (off uint64, ok bool) {
	off, ok = m.off, true
	for k := range m.terms {
		t := &m.terms[k]
		idx := w.s[t.reg[0]]
		switch t.kind {
		case termAffine:
			idx += w.at.x[lane]*w.s[t.reg[1]] + w.at.y[lane]*w.s[t.reg[2]] + w.at.z[lane]*w.s[t.reg[3]]
		case termVector:
			idx = w.r[t.reg[0]][lane]
		}
		if uint64(idx) >= t.bound {
			ok = false
		}
		off += uint64(idx) * t.stride
	}

	return off, ok && off <= n && m.size <= n-off
}

// scalars is the offset that the scalar terms make. ok is false if one is out of
// its range.
func (m *xmem) scalars(w *Worker) (off uint64, ok bool) {
	off, ok = m.off, true
	for k := range m.terms {
		t := &m.terms[k]
		if t.kind != termScalar {
			continue
		}
		idx := uint64(w.s[t.reg[0]])
		if idx >= t.bound {
			ok = false
		}
		off += idx * t.stride
	}
	return off, ok
}

// rowsAt is the address of an access with only scalar and affine terms. It computes
// indices as if they did not wrap: ok is false if one would, and at handles that.
// vec checks whether the address is in memory.
func (m *xmem) rowsAt(w *Worker, mem []byte) (a vec.Affine, ok bool) {
	if !m.quick {
		return m.rowAt(w, 0, int(w.k.block.X))
	}
	// If only the memory's end bounds the index, an index that wraps is also
	// outside, because no memory is so large.
	t := &m.terms[0]
	stride := int(t.stride)
	return vec.Affine{
		At: int(m.off) + int(w.s[t.reg[0]])*stride,
		X:  int(int32(w.s[t.reg[1]])) * stride, Y: int(int32(w.s[t.reg[2]])) * stride, Z: int(int32(w.s[t.reg[3]])) * stride,
		W: int(w.k.block.X), H: int(w.k.block.Y),
	}, len(mem) < 1<<32
}

// rowAt is rowsAt for lanes lo to hi-1 of each row.
func (m *xmem) rowAt(w *Worker, lo, hi int) (a vec.Affine, ok bool) {
	k := w.k
	a.W, a.H = hi-lo, int(k.block.Y)
	n := [3]int{hi - lo - 1, int(k.block.Y) - 1, int(k.block.Z) - 1}
	a.At = int(m.off)
	for j := range m.terms {
		t := &m.terms[j]
		idx, stride := int(w.s[t.reg[0]]), int(t.stride)
		if t.kind == termAffine {
			idx += int(int32(w.s[t.reg[1]])) * lo
		}

		a.At += idx * stride
		least, most := idx, idx
		if t.kind == termAffine {
			for d, step := range [3]*int{&a.X, &a.Y, &a.Z} {
				if n[d] == 0 {
					continue
				}
				c := int(int32(w.s[t.reg[1+d]]))
				if c > 0 {
					most += c * n[d]
				} else {
					least += c * n[d]
				}
				*step += c * stride
			}
		}

		if least < 0 || most >= int(t.bound) {
			return a, false
		}
	}

	return a, true
}

// part is the run of lanes from the first to the last active one, with their
// address, in a workgroup of one row: the other lanes may be out of range.
func (m *xmem) part(w *Worker) (a vec.Affine, lo, hi int, ok bool) {
	if w.lanes.full || w.k.block.Y != 1 || w.k.block.Z != 1 {
		return a, 0, 0, false
	}
	lo, hi = firstActive(w), lastActive(w)+1
	a, ok = m.rowAt(w, lo, hi)
	return a, lo, hi, ok
}

// outOfRange traps at the first active lane with an access out of range. It returns
// true if there is none.
func (m *xmem) outOfRange(w *Worker) bool {
	n := uint64(len(w.mem[m.slot]))
	for lane, on := range w.lanes.mask {
		if on == 0 {
			continue
		}
		if off, ok := m.at(w, lane, n); !ok {
			return m.trap(w, outcome.OutOfBounds, off, lane)
		}
	}
	return true
}

// trap reports an access. Offsets in shared memory and the like are from the start
// of the variable.
func (m *xmem) trap(w *Worker, kind outcome.TrapKind, off uint64, lane int) bool {
	return w.trap(kind, m.inst.src, m.binding, off-m.start, lane)
}

// usable reports that the memory begins at a valid address for an access of this
// size.
func (m *xmem) usable(w *Worker) bool {
	if uint64(w.aligned[m.slot])&(m.size-1) == 0 {
		return true
	}
	lane := firstActive(w)
	off, _ := m.at(w, lane, 1<<63)
	return m.trap(w, outcome.Misaligned, off, lane)
}

func firstActive(w *Worker) int {
	for lane, on := range w.lanes.mask {
		if on != 0 {
			return lane
		}
	}
	return 0
}
