package lane

import (
	"capgpu/outcome"
	"capgpu/program/lane/vec"
)

// xterm is a term of an address with its registers bound.
type xterm struct {
	stride uint64
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
	terms   []xterm
	fixed   bool // no term varies
	rows    bool // no term is a vector, and the strides are small
	vector  int  // the only term that is a vector, if the others are scalars; else -1
	inst    *ins
	v       *variable
}

func (e *emitter) access(i *ins) *xmem {
	m := &e.f.mems[i.aux]
	x := &xmem{off: m.off, size: uint64(m.size), binding: noBinding, fixed: true, rows: true, vector: -1, inst: i, v: m.v}
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
		xt := xterm{stride: uint64(t.stride), bound: uint64(t.bound)}
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
	if vectors != 1 || affines > 0 {
		x.vector = -1
	}
	return x
}

// at is the offset of a lane, and whether its indices are in range and the access
// is within n bytes.
func (m *xmem) at(w *Worker, lane int, n uint64) (off uint64, ok bool) {
	off, ok = m.off, true
	for k := range m.terms {
		t := &m.terms[k]
		idx := w.s[t.reg[0]]
		switch t.kind {
		case termAffine:
			idx += w.x[lane]*w.s[t.reg[1]] + w.y[lane]*w.s[t.reg[2]] + w.z[lane]*w.s[t.reg[3]]
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

// rowAddress is an affine address: the offset of lane 0 and the steps along x, y
// and z, in bytes. ok says that all lanes of the workgroup are in range.
type rowAddress struct {
	base, cx, cy, cz int64
}

func (a rowAddress) affine(k *Kernel) vec.Affine {
	return vec.Affine{At: int(a.base), X: int(a.cx), Y: int(a.cy), Z: int(a.cz), W: int(k.block.X), H: int(k.block.Y)}
}

// rowsAt finds the address of an access whose terms are scalar or affine. Indices
// are checked as if they did not wrap; those that do are left to at.
func (m *xmem) rowsAt(w *Worker, n uint64) (a rowAddress, ok bool) {
	k := w.k
	nx, ny, nz := int64(k.block.X)-1, int64(k.block.Y)-1, int64(k.block.Z)-1
	a.base = int64(m.off)
	top := int64(0) // of what the affine terms add
	for j := range m.terms {
		t := &m.terms[j]
		idx := int64(w.s[t.reg[0]])
		stride := int64(t.stride)
		if t.kind == termScalar {
			if uint64(idx) >= t.bound {
				return a, false
			}
			a.base += idx * stride
			continue
		}
		cx, cy, cz := int64(int32(w.s[t.reg[1]])), int64(int32(w.s[t.reg[2]])), int64(int32(w.s[t.reg[3]]))
		lo, hi := idx, idx
		span := func(c, n int64) {
			if c > 0 {
				hi += c * n
			} else {
				lo += c * n
			}
		}
		span(cx, nx)
		span(cy, ny)
		span(cz, nz)
		if lo < 0 || hi >= int64(t.bound) {
			return a, false
		}
		a.base += idx * stride
		if nx > 0 {
			a.cx += cx * stride
		}
		if ny > 0 {
			a.cy += cy * stride
		}
		if nz > 0 {
			a.cz += cz * stride
		}
		top += (hi - idx) * stride
	}
	// No lane is below 0, as no index is.
	if end := uint64(a.base) + uint64(top) + m.size; end > n {
		return a, false
	}
	return a, true
}

// outOfRange finds the first active lane whose access is out of range, and traps
// there. It returns true if there is none.
func (m *xmem) outOfRange(w *Worker) bool {
	n := uint64(len(w.mem[m.slot]))
	for lane, on := range w.mask {
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

// usable says that the memory begins where an access of this size may begin.
func (m *xmem) usable(w *Worker) bool {
	if uint64(w.aligned[m.slot])&(m.size-1) == 0 {
		return true
	}
	lane := firstActive(w)
	off, _ := m.at(w, lane, 1<<63)
	return m.trap(w, outcome.Misaligned, off, lane)
}

func firstActive(w *Worker) int {
	for lane, on := range w.mask {
		if on != 0 {
			return lane
		}
	}
	return 0
}
