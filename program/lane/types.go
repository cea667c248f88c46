package lane

import (
	"math"

	"capgpu/program/spirv"
)

type typeKind uint8

const (
	typeVoid typeKind = iota
	typeBool
	typeInt
	typeFloat
	typeVector
	typeArray
	typeRuntime
	typeStruct
	typePointer
)

// tinfo is the information about a type that lowering needs.
type tinfo struct {
	kind    typeKind
	width   int // bits of a scalar
	signed  bool
	elem    *tinfo
	elemID  spirv.ID
	n       int  // components, columns, elements or members
	matrix  bool // typeArray: the elements are the columns of a matrix
	members []spirv.ID
	leaves  int // scalars that a value has
	wide    bool
	storage spirv.StorageClass
	id      spirv.ID
	// layout without decorations, as shared memory has it
	size, align uint32
	// offs are the offsets of a structure's members: decorated, in leaves, and in
	// shared memory
	offs [3][]uint32
}

const maxLeaves = 16 << 10

// maxTypeBytes is the profile's limit of a fixed part of a buffer. Larger sizes, and
// larger numbers of scalars, count as this: nothing else may have them.
const maxTypeBytes = 1 << 30

// typ describes a type; it ends the compilation for one it does not know.
func (l *lowerer) typ(id spirv.ID) *tinfo {
	if t := l.types[id]; t != nil {
		return t
	}

	d := l.m.Def(id)
	if d == nil {
		fail(nil, "SPV-2901", "%%%d is not a type", id)
	}
	if l.depth++; l.depth > 64 {
		fail(d, "SPV-2901", "types are nested too deeply")
	}

	t := &tinfo{id: id, leaves: 1}
	switch d.Op {
	case spirv.OpTypeVoid:
		t.leaves = 0

	case spirv.OpTypeBool:
		t.kind, t.width = typeBool, 32
	case spirv.OpTypeInt:
		t.kind, t.width, t.signed = typeInt, int(d.Args[0]), d.Args[1] != 0

	case spirv.OpTypeFloat:
		t.kind, t.width = typeFloat, int(d.Args[0])
	case spirv.OpTypeVector:
		t.kind, t.elemID, t.n = typeVector, d.Arg(0), int(d.Args[1])

	case spirv.OpTypeMatrix:
		t.kind, t.elemID, t.n, t.matrix = typeArray, d.Arg(0), int(d.Args[1]), true

	case spirv.OpTypeArray:
		t.kind, t.elemID = typeArray, d.Arg(0)
		n, ok := l.constantBits(d.Arg(1))
		if !ok || n > math.MaxInt32 {
			fail(d, "SPV-2901", "an array's length is not a constant, or too large")
		}
		t.n = int(n)

	case spirv.OpTypeRuntimeArray:
		t.kind, t.elemID = typeRuntime, d.Arg(0)
	case spirv.OpTypeStruct:
		t.kind, t.n = typeStruct, len(d.Args)
		t.leaves, t.align = 0, 1
		for i := range d.Args {
			m := l.typ(d.Arg(i))
			t.members = append(t.members, d.Arg(i))
			t.leaves = min(t.leaves+m.leaves, maxTypeBytes)
			t.wide = t.wide || m.wide
			t.size = min((t.size+m.align-1)/m.align*m.align+m.size, maxTypeBytes)
			t.align = max(t.align, m.align)
		}
		t.size = (t.size + t.align - 1) / t.align * t.align

	case spirv.OpTypePointer:
		t.kind, t.elemID, t.storage = typePointer, d.Arg(1), spirv.StorageClass(d.Args[0])
	default:
		fail(d, "SPV-2901", "the lane engine has no such type")
	}

	switch t.kind {
	case typeInt, typeFloat, typeBool:
		switch t.width {
		case 8, 16, 32, 64:
		default:
			fail(d, "SPV-2901", "a scalar of %d bits", t.width)
		}
		t.wide = t.width == 64
		t.size = uint32(t.width / 8)
		t.align = t.size

	case typeVector, typeArray, typeRuntime:
		t.elem = l.typ(t.elemID)
		t.wide = t.elem.wide
		t.align = t.elem.align
		stride := (t.elem.size + t.align - 1) / max(1, t.align) * t.align
		t.size = uint32(min(uint64(stride)*uint64(t.n), maxTypeBytes))
		t.leaves = min(t.elem.leaves*t.n, maxTypeBytes)

	case typeVoid:
		t.align = 1
	case typePointer:
		t.leaves, t.align, t.size = 0, 8, 8
		if t.storage == spirv.StorageClassStorageBuffer || t.storage == spirv.StorageClassWorkgroup {
			t.leaves, t.wide = 1, true // where it leads, if that is chosen: see chosen.go
		}
	}

	t.align = max(t.align, 1)
	l.depth--
	l.types[id] = t
	return t
}

// pointee is the type behind a pointer type.
func (l *lowerer) pointee(id spirv.ID) (spirv.ID, spirv.StorageClass) {
	t := l.typ(id)
	if t.kind != typePointer {
		fail(l.m.Def(id), "SPV-2901", "not a pointer type")
	}
	return t.elemID, t.storage
}

// part is the type of member i of a composite.
func (l *lowerer) part(t *tinfo, i int) *tinfo {
	switch t.kind {
	case typeStruct:
		if i < len(t.members) {
			return l.typ(t.members[i])
		}
	case typeVector, typeArray:
		if i < t.n {
			return t.elem
		}
	}
	fail(l.src, "SPV-2901", "no member %d", i)
	return nil
}

// partLeaf is the number of the first leaf of member i.
func (l *lowerer) partLeaf(t *tinfo, i int) int {
	if t.kind != typeStruct {
		return i * t.elem.leaves
	}
	return int(l.memberOff(classPrivate, t, i))
}

// memberOff is the offset of a part of a type in memory of some class.
func (l *lowerer) memberOff(c class, t *tinfo, i int) uint32 {
	known := &t.offs[0]
	switch c {
	case classPrivate:
		known = &t.offs[1]
	case classShared:
		known = &t.offs[2]
	}
	if *known == nil {
		l.f.burn(l.src, len(t.members))
		*known = make([]uint32, len(t.members))
		l.memberOffs(c, t, *known)
	}
	return (*known)[i]
}

// memberOffs fills in all offsets of a structure.
func (l *lowerer) memberOffs(c class, t *tinfo, offs []uint32) {
	at := uint32(0)
	for i, id := range t.members {
		m := l.typ(id)
		switch c {
		case classPrivate:
			offs[i] = at
			at += uint32(m.leaves)
		case classShared:
			at = (at + m.align - 1) / m.align * m.align
			offs[i] = at
			at += m.size
		default:
			d, ok := l.m.MemberDecoration(t.id, i, spirv.DecorationOffset)
			if !ok {
				fail(l.src, "SPV-2901", "a member of a block has no Offset")
			}
			offs[i] = literal(d)
		}
	}
}

// literal is the first literal of a decoration.
func literal(d *spirv.Inst) uint32 {
	n := 2
	if d.Op == spirv.OpMemberDecorate {
		n = 3
	}
	if n >= len(d.Args) {
		return 0
	}
	return d.Args[n]
}

func (l *lowerer) stride(c class, t *tinfo) uint32 {
	switch {
	case c == classPrivate:
		return uint32(t.elem.leaves)
	case c == classShared, t.kind == typeVector, t.matrix:
		return (t.elem.size + t.elem.align - 1) / t.elem.align * t.elem.align
	}
	d, ok := l.m.Decoration(t.id, spirv.DecorationArrayStride)
	if !ok {
		fail(l.src, "SPV-2901", "an array in a block has no ArrayStride")
	}
	return literal(d)
}

// spread is how matrices lie in a buffer or in push constants; zero elsewhere, where
// they are arrays of columns. It is of the structure's member, so that a pointer
// carries it on to the matrix and its columns.
type spread struct {
	stride uint32 // from column to column, or row to row
	rows   bool
}

// spreadOf is that of a member.
func (l *lowerer) spreadOf(c class, t *tinfo, i int) spread {
	if c != classBuffer && c != classPush {
		return spread{}
	}
	d, ok := l.m.MemberDecoration(t.id, i, spirv.DecorationMatrixStride)
	if !ok {
		return spread{}
	}
	_, rows := l.m.MemberDecoration(t.id, i, spirv.DecorationRowMajor)
	return spread{literal(d), rows}
}

// strideIn is the distance of the parts of a type.
func (l *lowerer) strideIn(c class, t *tinfo, m spread) uint32 {
	switch {
	case m.stride == 0:
	case t.matrix && m.rows:
		return t.elem.elem.size
	case t.matrix, t.kind == typeVector && m.rows:
		return m.stride
	}
	return l.stride(c, t)
}

// leafVisit calls visit for each scalar of a type, with its offset.
func (l *lowerer) leafVisit(c class, t *tinfo, off uint64, visit func(t *tinfo, off uint64)) {
	l.leafVisitIn(c, t, off, spread{}, visit)
}

// leafVisitIn is leafVisit in a matrix, or in an array of matrices.
func (l *lowerer) leafVisitIn(c class, t *tinfo, off uint64, m spread, visit func(t *tinfo, off uint64)) {
	switch t.kind {
	case typeStruct:
		for i, id := range t.members {
			l.leafVisitIn(c, l.typ(id), off+uint64(l.memberOff(c, t, i)), l.spreadOf(c, t, i), visit)
		}
	case typeVector, typeArray:
		stride := uint64(l.strideIn(c, t, m))
		for i := range t.n {
			l.leafVisitIn(c, t.elem, off+uint64(i)*stride, m, visit)
		}
	case typeBool, typeInt, typeFloat, typePointer:
		visit(t, off)
	default:
		fail(l.src, "SPV-2901", "a value of a type that has none")
	}
}
