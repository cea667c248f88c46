package onelane

import (
	"encoding/binary"
	"fmt"
	"iter"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// Launch is one launch.
type Launch struct {
	Block, Grid program.Dim3
	SharedBytes uint32
	Bindings    [][]byte
	Inline      []byte
	Steps       int // of one lane at most; 0 is a million
}

// ErrSteps ends a lane that runs for too long.
type ErrSteps struct{}

func (ErrSteps) Error() string { return "a lane took too many steps" }

// Run runs all workgroups in order. A trap is the first of the lowest lane of the
// workgroup, which need not be the lane engine's first.
func Run(p *verify.Program, l *Launch) (trap outcome.Trap, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case outcome.Trap:
			trap = e
		case ErrSteps:
			err = e
		default:
			panic(e)
		}
	}()
	if l.Block == (program.Dim3{}) {
		l.Block = p.Info.Block
	}
	for z := range l.Grid.Z {
		for y := range l.Grid.Y {
			for x := range l.Grid.X {
				g := &group{p: p, m: p.Module, l: l, at: [3]uint32{x, y, z}, linear: x + l.Grid.X*(y+l.Grid.Y*z)}
				g.run()
			}
		}
	}
	return trap, nil
}

// value is a scalar's bits, or the parts of a composite.
type value struct {
	bits  uint64
	parts []value
}

func (v value) copy() value {
	if v.parts == nil {
		return v
	}
	c := value{parts: make([]value, len(v.parts))}
	for i, p := range v.parts {
		c.parts[i] = p.copy()
	}
	return c
}

// pointer is a place in a buffer, or a variable's value or part of one.
type pointer struct {
	typ     spirv.ID
	buffer  int // binding; -1: to
	inline  bool
	off     uint64
	to      *value
	outside bool // an index was past the end of a fixed array
}

type group struct {
	p      *verify.Program
	m      *spirv.Module
	l      *Launch
	at     [3]uint32
	linear uint32
	shared map[spirv.ID]*value
	consts map[spirv.ID]value
}

type lane struct {
	g     *group
	n     uint32
	vars  map[spirv.ID]*value // Private
	steps int
	yield func(struct{}) bool
}

type frame struct {
	ln   *lane
	vals map[spirv.ID]value
	ptrs map[spirv.ID]pointer
	typ  map[spirv.ID]spirv.ID
}

func (g *group) run() {
	g.shared = map[spirv.ID]*value{}
	g.consts = map[spirv.ID]value{}
	for _, id := range g.p.Shared {
		v := g.fill(g.pointee(g.m.Def(id).Type), 0xCDCDCDCDCDCDCDCD)
		g.shared[id] = &v
	}
	n := g.l.Block.X * g.l.Block.Y * g.l.Block.Z
	type running struct {
		next func() (struct{}, bool)
		stop func()
	}
	var live []running
	for i := range n {
		ln := &lane{g: g, n: i, vars: map[spirv.ID]*value{}, steps: g.l.Steps}
		if ln.steps == 0 {
			ln.steps = 1 << 20
		}
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			ln.yield = yield
			ln.main()
		})
		defer stop()
		live = append(live, running{next, stop})
	}
	// Each round takes every lane to its next barrier.
	for len(live) > 0 {
		var still []running
		for _, r := range live {
			if _, more := r.next(); more {
				still = append(still, r)
			}
		}
		live = still
	}
}

func (ln *lane) main() {
	for i := range ln.g.m.Globals {
		d := &ln.g.m.Globals[i]
		if d.Op == spirv.OpVariable && spirv.StorageClass(d.Args[0]) == spirv.StorageClassPrivate {
			v := ln.g.fill(ln.g.pointee(d.Type), 0)
			if len(d.Args) > 1 {
				v = ln.g.constant(d.Arg(1)).copy()
			}
			ln.vars[d.Result] = &v
		}
	}
	ln.call(ln.g.p.Entry, nil)
}

func (ln *lane) trap(kind outcome.TrapKind, binding int, off uint64) {
	b := uint16(0xFFFF)
	if binding >= 0 {
		b = uint16(binding)
	}
	panic(outcome.Trap{Kind: kind, Binding: b, Offset: off, Workgroup: ln.g.linear, Lane: ln.n})
}

func (g *group) def(id spirv.ID) *spirv.Inst {
	d := g.m.Def(id)
	if d == nil {
		panic(fmt.Errorf("%%%d is not defined", id))
	}
	return d
}

func (g *group) pointee(ptr spirv.ID) spirv.ID { return g.def(ptr).Arg(1) }

// parts is the number of parts of a composite type and the type of one.
func (g *group) parts(typ spirv.ID) (n int, part func(i int) spirv.ID) {
	d := g.def(typ)
	same := func(int) spirv.ID { return d.Arg(0) }
	switch d.Op {
	case spirv.OpTypeVector:
		return int(d.Args[1]), same
	case spirv.OpTypeArray:
		return int(g.constant(d.Arg(1)).bits), same
	case spirv.OpTypeRuntimeArray:
		return -1, same
	case spirv.OpTypeStruct:
		return len(d.Args), func(i int) spirv.ID { return d.Arg(i) }
	}
	return 0, nil
}

// width is the bits of a scalar.
func (g *group) width(typ spirv.ID) int {
	d := g.def(typ)
	switch d.Op {
	case spirv.OpTypeBool:
		return 1
	case spirv.OpTypeVector:
		return g.width(d.Arg(0))
	}
	return int(d.Args[0])
}

func (g *group) signed(typ spirv.ID) bool {
	d := g.def(typ)
	if d.Op == spirv.OpTypeVector {
		return g.signed(d.Arg(0))
	}
	return d.Op == spirv.OpTypeInt && d.Args[1] != 0
}

// fill is a value of a type with all scalars cut from bits.
func (g *group) fill(typ spirv.ID, bits uint64) value {
	n, part := g.parts(typ)
	if part == nil {
		return value{bits: cut(bits, g.width(typ))}
	}
	v := value{parts: make([]value, n)}
	for i := range v.parts {
		v.parts[i] = g.fill(part(i), bits)
	}
	return v
}

func cut(bits uint64, width int) uint64 {
	if width == 1 {
		return bits & 1
	}
	if width < 64 {
		return bits & (1<<width - 1)
	}
	return bits
}

func (g *group) constant(id spirv.ID) value {
	if v, ok := g.consts[id]; ok {
		return v
	}
	v := g.makeConstant(g.def(id))
	g.consts[id] = v
	return v
}

func (g *group) makeConstant(d *spirv.Inst) value {
	set, ok := g.p.Constants[d.Result]
	for i, id := range g.p.BlockIDs {
		if id == d.Result && id != 0 {
			set, ok = uint64([3]uint32{g.l.Block.X, g.l.Block.Y, g.l.Block.Z}[i]), true
		}
	}
	if d.Result == g.p.Dynamic {
		set, ok = uint64(g.l.SharedBytes/g.p.Info.DynamicElementBytes), true
	}
	switch d.Op {
	case spirv.OpConstantTrue, spirv.OpSpecConstantTrue:
		if ok && d.Op == spirv.OpSpecConstantTrue {
			return value{bits: cut(set, 1)}
		}
		return value{bits: 1}
	case spirv.OpConstantFalse, spirv.OpSpecConstantFalse:
		if ok && d.Op == spirv.OpSpecConstantFalse {
			return value{bits: cut(set, 1)}
		}
		return value{}
	case spirv.OpConstant, spirv.OpSpecConstant:
		bits := uint64(d.Args[0])
		if len(d.Args) > 1 {
			bits |= uint64(d.Args[1]) << 32
		}
		if ok && d.Op == spirv.OpSpecConstant {
			bits = set
		}
		return value{bits: cut(bits, g.width(d.Type))}
	case spirv.OpConstantNull, spirv.OpUndef:
		return g.fill(d.Type, 0)
	case spirv.OpConstantComposite, spirv.OpSpecConstantComposite:
		v := value{}
		for i := range d.Args {
			v.parts = append(v.parts, g.constant(d.Arg(i)))
		}
		return v
	case spirv.OpSpecConstantOp:
		in := &spirv.Inst{Op: spirv.Opcode(d.Args[0]), Type: d.Type, Result: d.Result, Args: d.Args[1:]}
		fr := &frame{ln: &lane{g: g}, vals: map[spirv.ID]value{}}
		return fr.compute(in)
	}
	panic(fmt.Errorf("%v is no constant", d.Op))
}

// load and store go through memory scalar by scalar.
func (fr *frame) load(p pointer) value {
	if p.to != nil {
		if p.outside {
			fr.ln.trap(outcome.OutOfBounds, -1, 0)
		}
		return p.to.copy()
	}
	g := fr.ln.g
	n, part := g.parts(p.typ)
	if part == nil {
		mem := fr.memory(p)
		b := mem[p.off:]
		switch g.width(p.typ) {
		case 8:
			return value{bits: uint64(b[0])}
		case 16:
			return value{bits: uint64(binary.LittleEndian.Uint16(b))}
		case 32:
			return value{bits: uint64(binary.LittleEndian.Uint32(b))}
		}
		return value{bits: binary.LittleEndian.Uint64(b)}
	}
	v := value{parts: make([]value, n)}
	for i := range v.parts {
		q := p
		q.off, q.typ = p.off+g.offset(p.typ, i), part(i)
		v.parts[i] = fr.load(q)
	}
	return v
}

func (fr *frame) store(p pointer, v value) {
	if p.to != nil {
		if p.outside {
			fr.ln.trap(outcome.OutOfBounds, -1, 0)
		}
		*p.to = v.copy()
		return
	}
	g := fr.ln.g
	_, part := g.parts(p.typ)
	if part == nil {
		b := fr.memory(p)[p.off:]
		switch g.width(p.typ) {
		case 8:
			b[0] = byte(v.bits)
		case 16:
			binary.LittleEndian.PutUint16(b, uint16(v.bits))
		case 32:
			binary.LittleEndian.PutUint32(b, uint32(v.bits))
		default:
			binary.LittleEndian.PutUint64(b, v.bits)
		}
		return
	}
	for i := range v.parts {
		q := p
		q.off, q.typ = p.off+g.offset(p.typ, i), part(i)
		fr.store(q, v.parts[i])
	}
}

// memory is the buffer of a pointer to a scalar, which it checks.
func (fr *frame) memory(p pointer) []byte {
	l := fr.ln.g.l
	var mem []byte
	binding := p.buffer
	if p.inline {
		mem, binding = make([]byte, 128), -1
		copy(mem, l.Inline)
	} else if p.buffer < len(l.Bindings) {
		mem = l.Bindings[p.buffer]
	}
	size := uint64(fr.ln.g.width(p.typ) / 8)
	if p.outside || p.off > uint64(len(mem)) || size > uint64(len(mem))-p.off {
		fr.ln.trap(outcome.OutOfBounds, binding, p.off)
	}
	return mem
}

// offset is where part i of a type with a layout begins.
func (g *group) offset(typ spirv.ID, i int) uint64 {
	d := g.def(typ)
	switch d.Op {
	case spirv.OpTypeStruct:
		x, ok := g.m.MemberDecoration(typ, i, spirv.DecorationOffset)
		if !ok {
			panic("a member without an offset")
		}
		return uint64(x.Args[len(x.Args)-1])
	case spirv.OpTypeVector:
		return uint64(i) * uint64(g.width(typ)/8)
	}
	x, ok := g.m.Decoration(typ, spirv.DecorationArrayStride)
	if !ok {
		panic("an array without a stride")
	}
	return uint64(i) * uint64(x.Args[len(x.Args)-1])
}
