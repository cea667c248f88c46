package onelane

import (
	"fmt"

	"capgpu/outcome"
	"capgpu/program/spirv"
)

// call runs a function. args are values and pointers.
func (ln *lane) call(f *spirv.Function, args []any) value {
	fr := &frame{ln: ln, vals: map[spirv.ID]value{}, ptrs: map[spirv.ID]pointer{}}
	for i, a := range args {
		switch a := a.(type) {
		case value:
			fr.vals[f.Params[i].Result] = a
		case pointer:
			fr.ptrs[f.Params[i].Result] = a
		}
	}
	blocks := map[spirv.ID]*spirv.Block{}
	for _, b := range f.Blocks {
		blocks[b.Label] = b
	}
	from, b := spirv.ID(0), f.Blocks[0]
	for {
		fr.phis(b, from)
		for i := range b.Insts {
			if b.Insts[i].Op != spirv.OpPhi {
				fr.step(&b.Insts[i])
			}
		}
		if ln.steps--; ln.steps < 0 {
			panic(ErrSteps{})
		}
		to := spirv.ID(0)
		switch b.Term.Op {
		case spirv.OpReturn:
			return value{}
		case spirv.OpReturnValue:
			return fr.value(b.Term.Arg(0))
		case spirv.OpBranch:
			to = b.Targets[0]
		case spirv.OpBranchConditional:
			to = b.Targets[1]
			if fr.value(b.Term.Arg(0)).bits != 0 {
				to = b.Targets[0]
			}
		case spirv.OpSwitch:
			to = b.Targets[0]
			for i, c := range b.Cases {
				if c == fr.value(b.Term.Arg(0)).bits {
					to = b.Targets[i+1]
				}
			}
		case spirv.OpUnreachable:
			ln.trap(outcome.Unreachable, -1, 0)
		default:
			panic(fmt.Errorf("%v ends a block", b.Term.Op))
		}
		from, b = b.Label, blocks[to]
	}
}

// phis are all taken at once.
func (fr *frame) phis(b *spirv.Block, from spirv.ID) {
	news := map[spirv.ID]value{}
	for i := range b.Insts {
		in := &b.Insts[i]
		if in.Op != spirv.OpPhi {
			break
		}
		for k := 0; k < len(in.Args); k += 2 {
			if in.Arg(k+1) == from {
				news[in.Result] = fr.value(in.Arg(k))
			}
		}
	}
	for id, v := range news {
		fr.vals[id] = v
	}
}

func (fr *frame) value(id spirv.ID) value {
	if v, ok := fr.vals[id]; ok {
		return v
	}
	return fr.ln.g.constant(id)
}

func (fr *frame) pointer(id spirv.ID) pointer {
	if p, ok := fr.ptrs[id]; ok {
		return p
	}
	g := fr.ln.g
	d := g.def(id)
	p := pointer{typ: g.pointee(d.Type), buffer: -1}
	switch spirv.StorageClass(d.Args[0]) {
	case spirv.StorageClassStorageBuffer, spirv.StorageClassUniform:
		x, _ := g.m.Decoration(id, spirv.DecorationBinding)
		p.buffer = int(x.Args[len(x.Args)-1])
	case spirv.StorageClassPushConstant:
		p.inline = true
	case spirv.StorageClassWorkgroup:
		p.to = g.shared[id]
	case spirv.StorageClassPrivate:
		p.to = fr.ln.vars[id]
	case spirv.StorageClassInput:
		x, _ := g.m.Decoration(id, spirv.DecorationBuiltIn)
		v := fr.ln.builtin(spirv.BuiltIn(x.Args[len(x.Args)-1]))
		p.to = &v
	}
	return p
}

func (ln *lane) builtin(b spirv.BuiltIn) value {
	l, at := ln.g.l, ln.g.at
	local := [3]uint32{ln.n % l.Block.X, ln.n / l.Block.X % l.Block.Y, ln.n / l.Block.X / l.Block.Y}
	three := func(v [3]uint32) value {
		return value{parts: []value{{bits: uint64(v[0])}, {bits: uint64(v[1])}, {bits: uint64(v[2])}}}
	}
	switch b {
	case spirv.BuiltInNumWorkgroups:
		return three([3]uint32{l.Grid.X, l.Grid.Y, l.Grid.Z})
	case spirv.BuiltInWorkgroupId:
		return three(at)
	case spirv.BuiltInLocalInvocationId:
		return three(local)
	case spirv.BuiltInGlobalInvocationId:
		return three([3]uint32{at[0]*l.Block.X + local[0], at[1]*l.Block.Y + local[1], at[2]*l.Block.Z + local[2]})
	case spirv.BuiltInLocalInvocationIndex:
		return value{bits: uint64(ln.n)}
	}
	panic(fmt.Errorf("built-in %v", b))
}

func (fr *frame) step(in *spirv.Inst) {
	g := fr.ln.g
	switch in.Op {
	case spirv.OpNop:
	case spirv.OpVariable:
		v := g.fill(g.pointee(in.Type), 0)
		if len(in.Args) > 1 {
			v = fr.value(in.Arg(1)).copy()
		}
		fr.ptrs[in.Result] = pointer{typ: g.pointee(in.Type), buffer: -1, to: &v}
	case spirv.OpAccessChain, spirv.OpInBoundsAccessChain:
		fr.ptrs[in.Result] = fr.chain(in)
	case spirv.OpLoad:
		fr.vals[in.Result] = fr.load(fr.pointer(in.Arg(0)))
	case spirv.OpStore:
		fr.store(fr.pointer(in.Arg(0)), fr.value(in.Arg(1)))
	case spirv.OpCopyMemory:
		fr.store(fr.pointer(in.Arg(0)), fr.load(fr.pointer(in.Arg(1))))
	case spirv.OpArrayLength:
		p := fr.pointer(in.Arg(0))
		member := int(in.Args[1])
		_, part := g.parts(p.typ)
		off, stride := p.off+g.offset(p.typ, member), g.offset(part(member), 1)
		n := uint64(0)
		if p.buffer < len(g.l.Bindings) {
			n = uint64(len(g.l.Bindings[p.buffer]))
		}
		v := value{}
		if n > off {
			v.bits = (n - off) / stride
		}
		fr.vals[in.Result] = v
	case spirv.OpFunctionCall:
		for _, f := range g.m.Functions {
			if f.ID() != in.Arg(0) {
				continue
			}
			var args []any
			for k := range f.Params {
				if g.def(f.Params[k].Type).Op == spirv.OpTypePointer {
					args = append(args, fr.pointer(in.Arg(k+1)))
				} else {
					args = append(args, fr.value(in.Arg(k+1)))
				}
			}
			fr.vals[in.Result] = fr.ln.call(f, args)
		}
	case spirv.OpControlBarrier:
		fr.ln.yield(struct{}{})
	case spirv.OpMemoryBarrier:
	case spirv.OpAtomicLoad, spirv.OpAtomicStore, spirv.OpAtomicExchange, spirv.OpAtomicCompareExchange, spirv.OpAtomicIIncrement,
		spirv.OpAtomicIDecrement, spirv.OpAtomicIAdd, spirv.OpAtomicISub, spirv.OpAtomicSMin, spirv.OpAtomicUMin, spirv.OpAtomicSMax,
		spirv.OpAtomicUMax, spirv.OpAtomicAnd, spirv.OpAtomicOr, spirv.OpAtomicXor:
		fr.atomic(in)
	default:
		fr.vals[in.Result] = fr.compute(in)
	}
}

func (fr *frame) chain(in *spirv.Inst) pointer {
	g := fr.ln.g
	p := fr.pointer(in.Arg(0))
	for k := 1; k < len(in.Args); k++ {
		idx := fr.value(in.Arg(k)).bits
		if d := g.def(in.Arg(k)); g.signed(d.Type) && g.width(d.Type) < 32 {
			idx = uint64(uint32(extend(idx, g.width(d.Type))))
		}
		n, part := g.parts(p.typ)
		if n >= 0 && idx >= uint64(n) {
			p.outside = true
			if p.to != nil {
				idx = 0
			}
		}
		if g.def(p.typ).Op == spirv.OpTypeStruct {
			if p.to == nil {
				p.off += g.offset(p.typ, int(idx))
			}
			p.typ = part(int(idx))
		} else {
			if p.to == nil {
				p.off += idx * g.offset(p.typ, 1)
			}
			p.typ = part(0)
		}
		if p.to != nil {
			p.to = &p.to.parts[idx]
		}
	}
	return p
}

func (fr *frame) atomic(in *spirv.Inst) {
	p := fr.pointer(in.Arg(0))
	w := fr.ln.g.width(p.typ)
	old := fr.load(p).bits
	arg := func(k int) uint64 { return fr.value(in.Arg(k)).bits }
	v := old
	s := func(x uint64) int64 { return int64(extend(x, w)) }
	switch in.Op {
	case spirv.OpAtomicStore, spirv.OpAtomicExchange:
		v = arg(3)
	case spirv.OpAtomicCompareExchange:
		if old == arg(5) {
			v = arg(4)
		}
	case spirv.OpAtomicIIncrement:
		v = old + 1
	case spirv.OpAtomicIDecrement:
		v = old - 1
	case spirv.OpAtomicIAdd:
		v = old + arg(3)
	case spirv.OpAtomicISub:
		v = old - arg(3)
	case spirv.OpAtomicSMin:
		v = uint64(min(s(old), s(arg(3))))
	case spirv.OpAtomicUMin:
		v = min(old, arg(3))
	case spirv.OpAtomicSMax:
		v = uint64(max(s(old), s(arg(3))))
	case spirv.OpAtomicUMax:
		v = max(old, arg(3))
	case spirv.OpAtomicAnd:
		v = old & arg(3)
	case spirv.OpAtomicOr:
		v = old | arg(3)
	case spirv.OpAtomicXor:
		v = old ^ arg(3)
	}
	if in.Op != spirv.OpAtomicLoad {
		fr.store(p, value{bits: cut(v, w)})
	}
	if in.Result != 0 {
		fr.vals[in.Result] = value{bits: old}
	}
}

// extend copies the sign of a value of width bits upward.
func extend(x uint64, width int) uint64 {
	if width >= 64 {
		return x
	}
	return uint64(int64(x<<(64-width)) >> (64 - width))
}
