package instrument

import (
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// typ is a type of the module. Sizes of types that no variable can have may wrap;
// nothing reads them.
type typ struct {
	id      spirv.ID
	op      spirv.Opcode
	width   uint32 // bits of a scalar
	signed  bool
	class   spirv.StorageClass // of a pointer
	elem    *typ               // of vector, matrix, array, pointer
	n       uint32             // components, columns, elements; 0: the launch or the binding decides
	length  spirv.ID           // the constant of an array's length
	launch  bool               // the launch decides its size
	members []*typ

	// Without explicit layout, as shared memory has it; where the launch decides a
	// length, with its default.
	size, align uint64
	offs        []uint64 // of members
}

// scalar is the type of a vector's components, or the type itself.
func (t *typ) scalar() *typ {
	if t.op == spirv.OpTypeVector {
		return t.elem
	}
	return t
}

// space is how offsets in a memory are counted; see the package comment.
type space uint8

const (
	inBuffer  space = iota // bytes, explicit layout
	inPush                 // likewise
	inNatural              // bytes, natural layout: memory of the workgroup and of the lane
	inInput                // likewise, of built-ins
)

func spaceOf(c spirv.StorageClass) space {
	switch c {
	case spirv.StorageClassStorageBuffer, spirv.StorageClassUniform:
		return inBuffer
	case spirv.StorageClassPushConstant:
		return inPush
	case spirv.StorageClassInput:
		return inInput
	}
	return inNatural
}

// spread is how a matrix lies in a block, as the member that it is in says; zero
// elsewhere, where its columns follow each other.
type spread struct {
	stride uint64 // from column to column, or row to row
	rows   bool
}

// laid is a type at a place.
type laid struct {
	*typ
	spread
}

func roundUp(n, align uint64) uint64 { return (n + align - 1) / align * align }

// layout knows the types of a module, and where their parts lie in memory.
type layout struct {
	m       *spirv.Module
	types   map[spirv.ID]*typ
	extents map[laid]uint64 // of types in buffers
}

func newLayout(p *verify.Program) *layout {
	l := &layout{m: p.Module, types: make(map[spirv.ID]*typ), extents: make(map[laid]uint64)}
	launch := launched(p)
	for i := range l.m.Globals {
		in := &l.m.Globals[i]
		if in.Op < spirv.OpTypeVoid || in.Op > spirv.OpTypeFunction {
			continue
		}

		t := &typ{id: in.Result, op: in.Op}
		switch in.Op {
		case spirv.OpTypeBool:
			t.size = 4

		case spirv.OpTypeInt:
			t.width, t.signed = in.Args[0], in.Args[1] != 0
			t.size = uint64(t.width / 8)

		case spirv.OpTypeFloat:
			t.width = in.Args[0]
			t.size = uint64(t.width / 8)

		case spirv.OpTypeVector, spirv.OpTypeMatrix:
			t.elem, t.n = l.types[in.Arg(0)], in.Args[1]
		case spirv.OpTypeArray:
			t.elem, t.length, t.n = l.types[in.Arg(0)], in.Arg(1), p.Lengths[in.Result]
		case spirv.OpTypeRuntimeArray:
			t.elem = l.types[in.Arg(0)]
		case spirv.OpTypePointer:
			t.class, t.elem = spirv.StorageClass(in.Args[0]), l.types[in.Arg(1)]

		case spirv.OpTypeStruct:
			t.align = 1
			for k := range in.Args {
				m := l.types[in.Arg(k)]
				t.members = append(t.members, m)
				t.size = roundUp(t.size, m.align) + m.size
				t.align = max(t.align, m.align)
				t.launch = t.launch || m.launch
			}
			t.size = roundUp(t.size, t.align)
		}

		switch in.Op {
		case spirv.OpTypeVector, spirv.OpTypeMatrix, spirv.OpTypeArray, spirv.OpTypeRuntimeArray:
			t.align = t.elem.align
			t.size = roundUp(t.elem.size, t.align) * uint64(t.n)
			t.launch = t.elem.launch
			if launch[t.length] {
				t.n, t.launch = 0, true
			}
		case spirv.OpTypeStruct:
		default:
			t.align = max(t.size, 1)
		}

		l.types[in.Result] = t
	}

	return l
}

// launched are the constants that depend on what the launch decides.
func launched(p *verify.Program) map[spirv.ID]bool {
	launch := map[spirv.ID]bool{p.Dynamic: p.Dynamic != 0}
	for id := range p.Sizes {
		launch[id] = true
	}

	for i := range p.Module.Globals {
		in := &p.Module.Globals[i]
		var from []uint32
		switch in.Op {
		case spirv.OpConstantComposite, spirv.OpSpecConstantComposite:
			from = in.Args
		case spirv.OpSpecConstantOp:
			switch from = in.Args[1:]; spirv.Opcode(in.Args[0]) {
			case spirv.OpCompositeExtract: // literals follow
				from = from[:1]
			case spirv.OpCompositeInsert, spirv.OpVectorShuffle:
				from = from[:2]
			}
		}
		for _, w := range from {
			if launch[spirv.ID(w)] {
				launch[in.Result] = true
			}
		}
	}
	return launch
}

// stride is the distance of the parts of a vector, matrix or array.
func (l *layout) stride(s space, t laid) uint64 {
	rows := t.rows && s != inNatural
	switch {
	case t.spread.stride == 0 || s == inNatural || s == inInput:
	case t.op == spirv.OpTypeMatrix && rows:
		return t.elem.elem.size
	case t.op == spirv.OpTypeMatrix, t.op == spirv.OpTypeVector && rows:
		return t.spread.stride
	}
	if s == inNatural || s == inInput || t.op == spirv.OpTypeVector || t.op == spirv.OpTypeMatrix {
		return roundUp(t.elem.size, t.elem.align)
	}
	if d, ok := l.m.Decoration(t.id, spirv.DecorationArrayStride); ok {
		return uint64(d.Args[2])
	}
	return 0
}

// memberOff is the offset of a member of a structure.
func (l *layout) memberOff(s space, t *typ, n int) (off uint64) {
	if s == inBuffer || s == inPush {
		if d, ok := l.m.MemberDecoration(t.id, n, spirv.DecorationOffset); ok {
			return uint64(d.Args[3])
		}
		return 0
	}

	if t.offs == nil {
		for _, m := range t.members {
			off = roundUp(off, m.align)
			t.offs = append(t.offs, off)
			off += m.size
		}
	}
	return t.offs[n]
}

// part is part n of a type: a member of a structure, or an element.
func (l *layout) part(s space, t laid, n int) laid {
	if t.op != spirv.OpTypeStruct {
		return laid{t.elem, t.spread}
	}
	m := laid{typ: t.members[n]}
	if d, ok := l.m.MemberDecoration(t.id, n, spirv.DecorationMatrixStride); ok && (s == inBuffer || s == inPush) {
		_, m.rows = l.m.MemberDecoration(t.id, n, spirv.DecorationRowMajor)
		m.spread.stride = uint64(d.Args[3])
	}
	return m
}

// visit calls f for each scalar of a type, in the order of its parts, until f
// returns false.
func (l *layout) visit(s space, t laid, off uint64, f func(off, size uint64) bool) bool {
	switch t.op {
	case spirv.OpTypeStruct:
		for k := range t.members {
			if !l.visit(s, l.part(s, t, k), off+l.memberOff(s, t.typ, k), f) {
				return false
			}
		}
		return true

	case spirv.OpTypeVector, spirv.OpTypeMatrix, spirv.OpTypeArray:
		stride := l.stride(s, t)
		for k := range uint64(t.n) {
			if !l.visit(s, l.part(s, t, 0), off+k*stride, f) {
				return false
			}
		}
		return true
	}
	return f(off, t.size)
}

// extent is where the last byte of a type in a buffer ends.
func (l *layout) extent(t laid) uint64 {
	if n, ok := l.extents[t]; ok {
		return n
	}
	end := uint64(0)
	l.visit(inBuffer, t, 0, func(off, size uint64) bool {
		end = max(end, off+size)
		return true
	})
	l.extents[t] = end
	return end
}
