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
	elem    *typ               // of vector, array, pointer
	n       uint32             // components, elements; 0: the launch or the binding decides
	length  spirv.ID           // the constant of an array's length
	members []*typ

	size, align uint64      // without explicit layout, as shared memory has it
	leaves      uint64      // scalars
	offs        [2][]uint64 // of members: in scalars, and in shared memory
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
	inShared               // bytes, natural layout
	inPrivate              // scalars
	inInput                // nothing traps there
)

func spaceOf(c spirv.StorageClass) space {
	switch c {
	case spirv.StorageClassStorageBuffer, spirv.StorageClassUniform:
		return inBuffer
	case spirv.StorageClassPushConstant:
		return inPush
	case spirv.StorageClassWorkgroup:
		return inShared
	case spirv.StorageClassInput:
		return inInput
	}
	return inPrivate
}

func roundUp(n, align uint64) uint64 { return (n + align - 1) / align * align }

// layout knows the types of a module, and where their parts lie in memory.
type layout struct {
	m       *spirv.Module
	types   map[spirv.ID]*typ
	extents map[*typ]uint64 // of types in buffers
}

func newLayout(p *verify.Program) *layout {
	l := &layout{m: p.Module, types: make(map[spirv.ID]*typ), extents: make(map[*typ]uint64)}
	for i := range l.m.Globals {
		in := &l.m.Globals[i]
		if in.Op < spirv.OpTypeVoid || in.Op > spirv.OpTypeFunction {
			continue
		}

		t := &typ{id: in.Result, op: in.Op, leaves: 1}
		switch in.Op {
		case spirv.OpTypeBool:
			t.size = 4

		case spirv.OpTypeInt:
			t.width, t.signed = in.Args[0], in.Args[1] != 0
			t.size = uint64(t.width / 8)

		case spirv.OpTypeFloat:
			t.width = in.Args[0]
			t.size = uint64(t.width / 8)

		case spirv.OpTypeVector:
			t.elem, t.n = l.types[in.Arg(0)], in.Args[1]
		case spirv.OpTypeArray:
			t.elem, t.length, t.n = l.types[in.Arg(0)], in.Arg(1), p.Lengths[in.Result]
		case spirv.OpTypeRuntimeArray:
			t.elem = l.types[in.Arg(0)]
		case spirv.OpTypePointer:
			t.class, t.elem = spirv.StorageClass(in.Args[0]), l.types[in.Arg(1)]

		case spirv.OpTypeStruct:
			t.leaves, t.align = 0, 1
			for k := range in.Args {
				m := l.types[in.Arg(k)]
				t.members = append(t.members, m)
				t.size = roundUp(t.size, m.align) + m.size
				t.align = max(t.align, m.align)
				t.leaves += m.leaves
			}
			t.size = roundUp(t.size, t.align)
		}

		switch in.Op {
		case spirv.OpTypeVector, spirv.OpTypeArray, spirv.OpTypeRuntimeArray:
			t.align = t.elem.align
			t.size = roundUp(t.elem.size, t.align) * uint64(t.n)
			t.leaves = t.elem.leaves * uint64(t.n)
		case spirv.OpTypeStruct:
		default:
			t.align = max(t.size, 1)
		}

		l.types[in.Result] = t
	}

	return l
}

// stride is the distance of the elements of a vector or array.
func (l *layout) stride(s space, t *typ) uint64 {
	switch {
	case s == inPrivate || s == inInput:
		return t.elem.leaves
	case s == inShared || t.op == spirv.OpTypeVector:
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

	known := &t.offs[0]
	if s == inShared {
		known = &t.offs[1]
	}
	if *known == nil {
		for _, m := range t.members {
			if s == inShared {
				off = roundUp(off, m.align)
			}
			*known = append(*known, off)
			if s == inShared {
				off += m.size
			} else {
				off += m.leaves
			}
		}
	}
	return (*known)[n]
}

// visit calls f for each scalar of a type, in the order of its parts, until f
// returns false.
func (l *layout) visit(s space, t *typ, off uint64, f func(off, size uint64) bool) bool {
	switch t.op {
	case spirv.OpTypeStruct:
		for k, m := range t.members {
			if !l.visit(s, m, off+l.memberOff(s, t, k), f) {
				return false
			}
		}
		return true

	case spirv.OpTypeVector, spirv.OpTypeArray:
		stride := l.stride(s, t)
		for k := range uint64(t.n) {
			if !l.visit(s, t.elem, off+k*stride, f) {
				return false
			}
		}
		return true
	}
	return f(off, t.size)
}

// extent is where the last byte of a type in a buffer ends.
func (l *layout) extent(t *typ) uint64 {
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
