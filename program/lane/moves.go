package lane

import "capgpu/program/lane/vec"

// copyStep copies to register d on active lanes.
func copyStep(d, s int32, wide, fromScalar bool) step {
	switch {
	case wide && fromScalar:
		return func(w *Worker) bool {
			if w.lanes.pending == 0 {
				vec.SplatL(w.q[d], w.sq[s])
			} else {
				blendSL(w.q[d], w.sq[s], w.lanes.mask)
			}
			return true
		}

	case wide:
		return func(w *Worker) bool {
			if w.lanes.pending == 0 {
				copy(w.q[d], w.q[s])
			} else {
				vec.BlendL(w.q[d], w.q[s], w.lanes.mask)
			}
			return true
		}

	case fromScalar:
		return func(w *Worker) bool {
			if w.lanes.pending == 0 {
				vec.Splat(w.r[d], w.s[s])
			} else {
				vec.BlendS(w.r[d], w.s[s], w.lanes.mask)
			}
			return true
		}
	}
	return func(w *Worker) bool {
		if w.lanes.pending == 0 {
			copy(w.r[d], w.r[s])
		} else {
			vec.Blend(w.r[d], w.r[s], w.lanes.mask)
		}
		return true
	}
}

// move is one copy of an edge.
type move struct {
	d, s       int32
	wide       bool
	vary, from bool // destination, source is a vector
}

func (m move) step() step {
	if m.vary {
		return copyStep(m.d, m.s, m.wide, !m.from)
	}
	d, s := m.d, m.s
	if m.wide {
		return func(w *Worker) bool { w.sq[d] = w.sq[s]; return true }
	}
	return func(w *Worker) bool { w.s[d] = w.s[s]; return true }
}

// copies are the assignments to the phis of block to on the way from block from.
// They happen at once: a register is read before it is written, and a cycle is
// broken by saving one of its registers.
func (e *emitter) copies(from, to int32) []step {
	f := e.f
	b := &f.blocks[to]
	f.burn(b.src, 1+len(b.preds)/16+4*b.phis)
	at := -1
	for k, p := range b.preds {
		if p == from {
			at = k
		}
	}

	var todo []move
	for _, p := range b.ins[:b.phis] {
		ph := &f.ins[p]
		s := ph.args[at]
		if e.a.reg[p] < 0 {
			continue
		}
		m := move{d: e.reg(p), s: e.reg(s), wide: ph.wide, vary: ph.vary, from: f.varying(s)}
		if m.d == m.s && m.vary == m.from {
			continue
		}
		todo = append(todo, m)
	}

	return e.sequence(todo)
}

// sequence orders simultaneous moves so that they can be made one by one.
func (e *emitter) sequence(todo []move) []step {
	type place struct {
		reg  int32
		wide bool
	}

	readers := make(map[place][]int, len(todo)) // moves that are still to read a register
	writer := make(map[place]int, len(todo))
	left := make(map[place]int, len(todo))
	for k, m := range todo {
		readers[place{m.s, m.wide}] = append(readers[place{m.s, m.wide}], k)
		left[place{m.s, m.wide}]++
		writer[place{m.d, m.wide}] = k
	}

	out := make([]step, 0, len(todo))
	done := make([]bool, len(todo))
	var ready []int // moves to destinations that nobody reads any more
	for k, m := range todo {
		if left[place{m.d, m.wide}] == 0 {
			ready = append(ready, k)
		}
	}

	free := func() {
		for len(ready) > 0 {
			k := ready[len(ready)-1]
			ready = ready[:len(ready)-1]
			m := todo[k]
			out = append(out, m.step())
			done[k] = true
			from := place{m.s, m.wide}
			if left[from]--; left[from] == 0 {
				if next, ok := writer[from]; ok && !done[next] {
					ready = append(ready, next)
				}
			}
		}
	}

	free()
	for k := range todo {
		if done[k] {
			continue
		}

		// Only cycles are left. Save the register that this move writes for the
		// moves that read it.
		m := todo[k]
		at := place{m.d, m.wide}
		aside := move{d: e.spare(m), s: m.d, wide: m.wide, vary: m.vary, from: m.vary}
		out = append(out, aside.step())
		for _, r := range readers[at] {
			if !done[r] {
				todo[r].s = aside.d
			}
		}

		left[at] = 0
		ready = append(ready, k)
		free()
	}

	return out
}

// beside is one of two vector registers for values that are used together.
func (e *emitter) beside(n int32) int32 { return e.temp(false) + 1 + n }

// spare is a register beside all others, of a move's kind.
func (e *emitter) spare(m move) int32 {
	switch {
	case m.vary:
		return e.temp(m.wide)
	case m.wide:
		return e.temp(true) + 1
	}
	return e.temp(false) + 3
}
