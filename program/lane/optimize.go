package lane

import "capgpu/program/spirv"

// fuse combines a multiplication and its only use, an addition, into one
// instruction. It still rounds twice.
func (f *fn) fuse() {
	uses := f.countUses()
	for n := range f.blocks {
		for _, v := range f.blocks[n].ins {
			i := &f.ins[v]
			if i.op != op(spirv.OpFAdd) || i.wide || !i.vary {
				continue
			}
			for k, a := range i.args {
				m := &f.ins[a]
				if m.op == op(spirv.OpFMul) && m.vary && uses[a] == 1 && m.blk == i.blk && !m.mask {
					other := i.args[1-k]
					i.op = iMulAdd
					i.args = f.take([]val{m.args[0], m.args[1], other})
					m.dead = true
					break
				}
			}
		}
		f.sweep(&f.blocks[n])
	}
}

func (f *fn) countUses() []int32 {
	uses := make([]int32, len(f.ins))
	for n := range f.blocks {
		b := &f.blocks[n]
		for _, v := range b.ins {
			for _, a := range f.ins[v].args {
				uses[a]++
			}
		}
		uses[b.cond]++
	}
	return uses
}

// splats replaces uniform operands by vectors if there is no operation with a
// scalar.
func (f *fn) splats() {
	for n := range f.blocks {
		b := &f.blocks[n]
		list := make([]val, 0, len(b.ins)+4)
		for _, v := range b.ins {
			i := f.ins[v]
			if i.vary && f.needsVectors(&i) {
				for k, a := range i.args {
					if f.varying(a) || f.takesScalar(&i, k) {
						continue
					}
					s := f.add(ins{op: iSplat, wide: f.ins[a].wide, vary: true, blk: int32(n), args: f.take([]val{a}), src: i.src})
					list = append(list, s)
					i.args[k] = s
				}
			}
			list = append(list, v)
		}

		b.ins = list
	}
}

func (f *fn) varying(v val) bool {
	i := &f.ins[v]
	return i.vary || i.op == iInput && i.imm >= inUniforms
}

func (f *fn) needsVectors(i *ins) bool {
	switch i.op {
	case iPhi, iLoad, iStore, iAtomic, iLoadAt, iStoreAt, iAtomicAt, iKeep, iSplat, iCheckZero, iCheckIndex:
		return false
	}
	return true
}

// takesScalar reports whether operand k may be a scalar while another one varies.
func (f *fn) takesScalar(i *ins, k int) bool {
	if i.op == iMulAdd {
		return k < 2 && f.varying(i.args[1-k])
	}
	if len(i.args) != 2 || i.op >= iNone || !f.varying(i.args[1-k]) {
		return false
	}
	return hasScalarForm(i, f.ins[i.args[0]].wide)
}

type valueKey struct {
	op   op
	wide bool
	aux  int32
	imm  uint64
	args [4]val
}

// share replaces a repeated computation by its earlier result.
func (f *fn) share() {
	known := make(map[valueKey][]val)
	tree := f.domTree()
	for n := range f.blocks {
		b := &f.blocks[n]
		for _, v := range b.ins {
			i := &f.ins[v]
			for k, a := range i.args {
				i.args[k] = f.resolve(a)
			}

			if i.void || !f.pure(i) || len(i.args) > 4 {
				continue
			}

			k := valueKey{op: i.op, wide: i.wide, aux: i.aux, imm: i.imm}
			copy(k.args[:], i.args)
			found := val(0)
			list := known[k]
			for j := len(list) - 1; j >= 0 && j >= len(list)-4; j-- {
				w := &f.ins[list[j]]
				if w.vary == i.vary && tree.dominates(w.blk, int32(n)) && !f.leaves(w.blk, int32(n)) {
					found = list[j]
					break
				}
			}

			if found == 0 {
				known[k] = append(list, v)
				continue
			}

			f.ins[found].mask = f.ins[found].mask || i.mask
			i.op, i.args = iCopy, f.take([]val{found})
		}
	}

	f.settle()
}

// hoist moves computations that are constant in a loop in front of it.
func (f *fn) hoist() {
	for n := range f.blocks {
		b := &f.blocks[n]
		if b.loop < 0 {
			continue
		}

		keep := b.ins[:0]
		for _, v := range b.ins {
			i := &f.ins[v]
			if i.void || !f.pure(i) {
				keep = append(keep, v)
				continue
			}

			to := int32(-1)
			for k := b.loop; k >= 0 && f.allOutside(i, k); k = f.loops[k].parent {
				// The block before the loop must not be in another loop, which
				// lanes may have left at different times.
				if d := f.blocks[f.loops[k].first].idom; f.blocks[d].loop == f.loops[k].parent {
					to = d
				}
			}

			if to < 0 {
				keep = append(keep, v)
				continue
			}

			i.blk = to
			f.blocks[to].ins = append(f.blocks[to].ins, v)
		}

		b.ins = keep
	}
}

// perLaunch extracts computations that depend only on the launch: its grid, its
// inline block, the sizes of its bindings.
func (f *fn) perLaunch() {
	for n := range f.blocks {
		b := &f.blocks[n]
		keep := b.ins[:0]
	next:
		for _, v := range b.ins {
			i := &f.ins[v]
			if i.void || i.vary || !f.pure(i) {
				keep = append(keep, v)
				continue
			}
			for _, a := range i.args {
				x := &f.ins[a]
				if !x.once && x.op != iConst && (x.op != iInput || x.imm < inGridX || x.imm >= inUniforms) {
					keep = append(keep, v)
					continue next
				}
			}
			i.once, i.blk = true, 0
			f.launch = append(f.launch, v)
		}
		b.ins = keep
	}
}

func (f *fn) allOutside(i *ins, k int32) bool {
	for _, a := range i.args {
		if x := &f.ins[a]; x.op != iConst && x.op != iInput && f.within(x.blk, k) {
			return false
		}
	}
	return true
}
