package lane

import "capgpu/program/lane/vec"

// operand is a value that may be a scalar.
type operand struct {
	reg  int32
	vary bool
	wide bool
}

func (e *emitter) operand(v val) operand {
	return operand{e.reg(v), e.f.varying(v), e.f.ins[v].wide}
}

func (o operand) at(w *Worker, lane int) uint64 {
	switch {
	case o.wide && o.vary:
		return w.q[o.reg][lane]
	case o.wide:
		return w.sq[o.reg]
	case o.vary:
		return uint64(w.r[o.reg][lane])
	}
	return uint64(w.s[o.reg])
}

// vector is the operand as a vector of 32 bits.
func (o operand) vector(w *Worker) []uint32 {
	if o.vary {
		return w.r[o.reg]
	}
	vec.Splat(w.spare, w.s[o.reg])
	return w.spare
}

// store is the step of an iStore. Lanes store in ascending order: if several store
// to one place, the last value stays.
func (e *emitter) store(i *ins) step {
	m := e.access(i)
	v := e.operand(i.args[len(i.args)-1])
	if e.f.mems[i.aux].v.class == classPrivate {
		return e.storePrivate(m, v)
	}

	lanes := func(w *Worker) bool { return m.usable(w) && m.storeLanes(w, v) }
	if e.k.check {
		return lanes
	}

	words := m.size == 4 && m.off%4 == 0
	for k := range m.terms {
		words = words && m.terms[k].stride%4 == 0
	}

	switch {
	case m.fixed:
		return func(w *Worker) bool {
			mem := w.mem[m.slot]
			off, ok := m.scalars(w)
			if !ok || off > uint64(len(mem)) || m.size > uint64(len(mem))-off || uint64(w.aligned[m.slot])&(m.size-1) != 0 {
				return m.usable(w) && m.outOfRange(w)
			}
			last := 0
			if v.vary {
				last = lastActive(w)
			}
			write(mem, off, m.size, v.at(w, last))
			return true
		}

	case words && m.rows:
		return func(w *Worker) bool {
			mem := w.mem[m.slot]
			if w.aligned[m.slot]&3 != 0 {
				return lanes(w)
			}
			a, ok := m.rowsAt(w, mem)
			switch {
			case ok && w.lanes.full && vec.StoreAffine32(mem, a, v.vector(w)):
				return true
			case ok && !w.lanes.full && vec.StoreAffineMask(mem, a, w.lanes.mask, v.vector(w)):
				return true
			}
			if a, lo, hi, ok := m.part(w); ok && vec.StoreAffineMask(mem, a, w.lanes.mask[lo:hi], v.vector(w)[lo:hi]) {
				return true
			}
			return lanes(w)
		}

	case m.rows && m.size < 4:
		store := vec.StoreAffine8
		if m.size == 2 {
			store = vec.StoreAffine16
		}
		return func(w *Worker) bool {
			mem := w.mem[m.slot]
			a, ok := m.rowsAt(w, mem)
			if ok && w.lanes.full && uint64(w.aligned[m.slot])&(m.size-1) == 0 && store(mem, a, v.vector(w)) {
				return true
			}
			return lanes(w)
		}

	case words && m.vector >= 0:
		t := &m.terms[m.vector]
		stride, bound, reg := t.stride/4, t.bound, t.reg[0]
		return func(w *Worker) bool {
			mem := w.words[m.slot]
			at, ok := m.scalars(w)
			if at/4 > uint64(len(mem)) {
				ok = false
			}
			if !ok || w.aligned[m.slot]&3 != 0 {
				return lanes(w)
			}
			return m.scatter(w, mem[at/4:], w.r[reg], v.vector(w), stride, bound) || lanes(w)
		}
	}

	return lanes
}

func (m *xmem) storeLanes(w *Worker, v operand) bool {
	mem := w.mem[m.slot]
	n := uint64(len(mem))
	if !m.outOfRange(w) {
		return false
	}

	for lane, on := range w.lanes.mask {
		if on == 0 {
			continue
		}
		off, _ := m.at(w, lane, n)
		x := v.at(w, lane)
		if w.checker != nil {
			w.checker.write(w, m, off, x, lane)
		}
		write(mem, off, m.size, x)
	}

	return true
}

// scatter stores words at idx × stride. It returns false, without having stored
// anything, if an index of an active lane may be out of range.
func (m *xmem) scatter(w *Worker, mem, idx, src []uint32, stride, bound uint64) bool {
	limit := uint64(0)
	switch {
	case len(mem) == 0:
	case stride == 0:
		limit = 1 << 32
	default:
		limit = (uint64(len(mem))-1)/stride + 1
	}

	limit = min(limit, bound)
	mask := w.lanes.mask
	for i, on := range mask {
		if on != 0 && uint64(idx[i]) >= limit {
			return false
		}
	}

	for i, on := range mask {
		if on != 0 {
			mem[uint64(idx[i])*stride] = src[i]
		}
	}

	return true
}

func lastActive(w *Worker) int {
	for lane := len(w.lanes.mask) - 1; lane > 0; lane-- {
		if w.lanes.mask[lane] != 0 {
			return lane
		}
	}
	return 0
}
