package verify

import (
	"math"
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// layout is the layout of a type in a buffer or in push constants.
type layout struct {
	bytes   uint64 // without a runtime array at its end
	align   uint32 // of its largest scalar
	stride  uint32 // of an array
	offsets []uint32
	flags   []uint8 // of members: noWrite, noRead
	// matrices are, of members that are matrices or arrays of them, how these lie.
	matrices []matrix
}

// matrix is how a matrix lies in a block: the member of a struct that it is in says it.
type matrix struct {
	stride uint32 // from column to column, or row to row
	rows   bool   // row by row
}

// ofMatrices reports whether a type is a matrix or an array of matrices.
func (t *typ) ofMatrices() bool {
	for t.kind == kArray || t.kind == kRuntimeArray {
		t = t.elem
	}
	return t.kind == kMatrix
}

// Flags of ids; decorations forbid the first two.
const (
	noWrite = 1 << iota
	noRead
	inInterface // of a variable: the entry point names it
	isUsed      // of a result
	inMatrix    // of a pointer: to a part of a matrix
)

// maxExtent bounds the fixed size of a buffer's type, so that offsets within it fit
// 32 bits with room to spare.
const maxExtent = 1 << 30

func (l *layout) all(flag uint8) bool {
	for _, f := range l.flags {
		if f&flag == 0 {
			return false
		}
	}
	return len(l.flags) > 0
}

// layoutOf fills t.layout. Types nest at most Limits.TypeDepth deep, and each is
// laid out once.
func (v *verifier) layoutOf(t *typ) *program.Refusal {
	if t.layout != nil {
		return nil
	}
	l, r := v.layoutIn(t, matrix{})
	if r == nil {
		t.layout = l
	}
	return r
}

// layoutIn is the layout of a type. Only that of matrices, and of arrays of them,
// depends on m.
func (v *verifier) layoutIn(t *typ, m matrix) (*layout, *program.Refusal) {
	if t.layout != nil {
		return t.layout, nil
	}
	if !t.ofMatrices() {
		m = matrix{}
	}

	l := &layout{}
	switch t.kind {
	case kInt, kFloat:
		l.bytes, l.align = uint64(t.width/8), uint32(t.width/8)

	case kVector:
		l.bytes, l.align = uint64(t.width/8)*uint64(t.n), uint32(t.width/8)
	case kArray, kRuntimeArray:
		e, r := v.layoutIn(t.elem, m)
		if r != nil {
			return nil, r
		}
		if m.stride == 0 {
			t.elem.layout = e
		}
		d := v.dec(t.id(), spirv.DecorationArrayStride)
		if d == nil {
			return nil, v.refuse(CodeLayout, t.in, "an array in a block without ArrayStride")
		}
		l.stride, l.align = uint32(d.Arg(2)), e.align
		if uint64(l.stride) < e.bytes || l.stride%l.align != 0 {
			return nil, v.refuse(CodeLayout, d, "a stride of %d for elements of %d bytes, aligned to %d", l.stride, e.bytes, e.align)
		}
		if l.stride > maxExtent {
			return nil, v.refuse(CodeLarge, d, "a stride of %d bytes", l.stride)
		}
		if t.kind == kArray {
			l.bytes = uint64(l.stride) * uint64(t.n) // below 2³⁰ × 2³¹
		}

	case kMatrix:
		if r := v.matrixLayout(t, l, m); r != nil {
			return nil, r
		}

	case kStruct:
		if r := v.structLayout(t, l); r != nil {
			return nil, r
		}

	default:
		return nil, v.refuse(CodeLayout, t.in, "in a block")
	}

	if l.bytes > maxExtent {
		return nil, v.refuse(CodeLarge, t.in, "%d bytes in a block", l.bytes)
	}

	return l, nil
}

func (v *verifier) matrixLayout(t *typ, l *layout, m matrix) *program.Refusal {
	l.align = uint32(t.width / 8)
	lines, line := t.n, uint64(l.align)*uint64(t.elem.n)
	if m.rows {
		lines, line = t.elem.n, uint64(l.align)*uint64(t.n)
	}
	if uint64(m.stride) < line || m.stride%l.align != 0 || m.stride > maxExtent {
		return v.refuse(CodeLayout, t.in, "a matrix with a MatrixStride of %d for %d bytes, aligned to %d", m.stride, line, l.align)
	}
	l.bytes = uint64(m.stride)*uint64(lines-1) + line
	return nil
}

func (v *verifier) structLayout(t *typ, l *layout) *program.Refusal {
	const none = math.MaxUint32
	l.align = 1
	l.offsets, l.flags, l.matrices = make([]uint32, len(t.members)), make([]uint8, len(t.members)), make([]matrix, len(t.members))
	columns := make([]bool, len(t.members))
	for i := range l.offsets {
		l.offsets[i] = none
	}

	for i := v.decHead[t.id()]; i != 0; i = v.decNext[i-1] {
		in := &v.m.Annotations[i-1]
		if in.Op != spirv.OpMemberDecorate || uint64(in.Arg(1)) >= uint64(len(t.members)) {
			continue
		}

		m := in.Arg(1)
		switch spirv.Decoration(in.Arg(2)) {
		case spirv.DecorationOffset:
			if l.offsets[m] != none {
				return v.refuse(CodeDecorated, in, "decoration Offset twice on member %d", m)
			}
			l.offsets[m] = uint32(in.Arg(3))
		case spirv.DecorationMatrixStride:
			if l.matrices[m].stride != 0 || in.Arg(3) == 0 {
				return v.refuse(CodeDecorated, in, "decoration MatrixStride of %d, or twice on member %d", in.Arg(3), m)
			}
			l.matrices[m].stride = uint32(in.Arg(3))
		case spirv.DecorationRowMajor, spirv.DecorationColMajor:
			if l.matrices[m].rows || columns[m] {
				return v.refuse(CodeDecorated, in, "a second ColMajor or RowMajor on member %d", m)
			}
			rows := spirv.Decoration(in.Arg(2)) == spirv.DecorationRowMajor
			l.matrices[m].rows, columns[m] = rows, !rows
		case spirv.DecorationNonWritable:
			l.flags[m] |= noWrite
		case spirv.DecorationNonReadable:
			l.flags[m] |= noRead
		}
	}

	ends := make([]uint64, len(t.members))
	for i, e := range t.members {
		if m := l.matrices[i]; e.ofMatrices() && (m.stride == 0 || m.rows == columns[i]) {
			return v.refuse(CodeLayout, t.in, "member %d is a matrix without MatrixStride, or without one of ColMajor and RowMajor", i)
		}
		part, r := v.layoutIn(e, l.matrices[i])
		if r != nil {
			return r
		}
		if !e.ofMatrices() {
			e.layout = part
		}
		l.align = max(l.align, part.align)
		switch off := l.offsets[i]; {
		case off == none:
			return v.refuse(CodeLayout, t.in, "member %d in a block without Offset", i)
		case off%part.align != 0:
			return v.refuse(CodeLayout, t.in, "member %d at offset %d, aligned to %d", i, off, part.align)
		default:
			ends[i] = uint64(off) + part.bytes
			l.bytes = max(l.bytes, ends[i])
		}
	}

	return v.overlaps(t, l, ends)
}

// overlaps refuses members that share bytes, and a runtime array that is not the
// last in memory.
func (v *verifier) overlaps(t *typ, l *layout, ends []uint64) *program.Refusal {
	order := make([]int, len(t.members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(int64(l.offsets[a]) - int64(l.offsets[b])) })
	var end uint64
	for i, m := range order {
		if uint64(l.offsets[m]) < end {
			return v.refuse(CodeLayout, t.in, "member %d at offset %d overlaps member %d", m, l.offsets[m], order[i-1])
		}
		if end = ends[m]; t.members[m].kind == kRuntimeArray && i != len(order)-1 {
			return v.refuse(CodeLayout, t.in, "member %d lies beyond an array without an end", order[i+1])
		}
	}
	return nil
}
