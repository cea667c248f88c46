package lanetest

import (
	"fmt"
	"reflect"

	"capgpu/outcome"
	"capgpu/program/spirv"
)

// pointer is a place in a variable: the indexes that lead there.
type pointer struct {
	variable *variable
	path     []uint64
	shift    uint64 // bytes that OpPtrAccessChain went on; modulo 2^64
	shifted  bool
}

// variable is a variable of one lane, of the workgroup or of the launch.
type variable struct {
	typ     *typ
	class   spirv.StorageClass
	bytes   []byte // of a buffer, push constants or shared memory
	binding uint16 // or outcome.NoBinding
	value   value  // of one lane's
	buffers []*variable
}

// fault is the cause of a lane's trap. index orders the possible faults of an
// instruction's parts.
type fault struct {
	kind    outcome.TrapKind
	binding uint16
	off     uint64
	index   int
}

// inMemory reports whether the variable is bytes.
func (v *variable) inMemory() bool {
	switch v.class {
	case spirv.StorageClassFunction, spirv.StorageClassPrivate, spirv.StorageClassInput:
		return false
	}
	return true
}

// size and align are those of a type in shared memory, which has no decorations:
// numbers are aligned to their size, a bool is a word.
func (t *typ) size() uint64 {
	switch t.op {
	case spirv.OpTypeBool:
		return 4
	case spirv.OpTypeInt, spirv.OpTypeFloat:
		return t.width / 8
	case spirv.OpTypeStruct:
		end := uint64(0)
		for _, m := range t.members {
			end = up(end, m.align()) + m.size()
		}
		return up(end, t.align())
	}
	return t.elem.size() * uint64(t.n)
}

func (t *typ) align() uint64 {
	switch t.op {
	case spirv.OpTypeBool, spirv.OpTypeInt, spirv.OpTypeFloat:
		return t.size()
	case spirv.OpTypeStruct:
		most := uint64(1)
		for _, m := range t.members {
			most = max(most, m.align())
		}
		return most
	}
	return t.elem.align()
}

func up(n, align uint64) uint64 { return (n + align - 1) / align * align }

// rows is how the matrices of a structure's member lie in memory with decorations.
type rows struct {
	stride uint64 // from column to column, or, row by row, from row to row
	major  bool
}

// inside is how the matrices of part i of a type lie.
func (m *machine) inside(t *typ, i uint64, shared bool, in rows) rows {
	if t.op != spirv.OpTypeStruct || shared {
		return in
	}
	d, ok := m.module.MemberDecoration(t.id, int(i), spirv.DecorationMatrixStride)
	if !ok {
		return rows{}
	}
	_, major := m.module.MemberDecoration(t.id, int(i), spirv.DecorationRowMajor)
	return rows{uint64(d.Args[3]), major}
}

// offset is the offset of part i of a type.
func (m *machine) offset(t *typ, i uint64, shared bool, in rows) uint64 {
	switch {
	case in.stride > 0 && t.op == spirv.OpTypeMatrix && in.major:
		return i * t.elem.elem.size()
	case in.stride > 0 && (t.op == spirv.OpTypeMatrix || t.op == spirv.OpTypeVector && in.major):
		return i * in.stride

	case t.op == spirv.OpTypeVector:
		return i * t.elem.size()

	case t.op == spirv.OpTypeStruct && shared:
		off := uint64(0)
		for k := range t.members {
			off = up(off, t.members[k].align())
			if uint64(k) == i {
				break
			}
			off += t.members[k].size()
		}
		return off

	case t.op == spirv.OpTypeStruct:
		d, _ := m.module.MemberDecoration(t.id, int(i), spirv.DecorationOffset)
		return uint64(d.Args[3])

	case shared:
		return i * t.elem.size()
	}

	d, _ := m.module.Decoration(t.id, spirv.DecorationArrayStride)
	return i * uint64(d.Args[2])
}

// place is the target of a pointer: the byte offset in memory, or the path in a
// lane's own variable. ok reports whether all indexes are in range.
func (m *machine) place(p *pointer) (t *typ, off uint64, in rows, ok bool) {
	t, ok = p.variable.typ, true
	shared := p.variable.class == spirv.StorageClassWorkgroup || !p.variable.inMemory()
	for _, i := range p.path {
		if t.op != spirv.OpTypeRuntimeArray && i >= uint64(t.n) {
			ok = false
		}
		off += m.offset(t, i, shared, in)
		in = m.inside(t, i, shared, in)
		if t.op == spirv.OpTypeStruct {
			t = t.members[i]
		} else {
			t = t.elem
		}
	}

	if p.shifted { // an offset before the start is one that no memory has
		off = (off + p.shift) & (1<<55 - 1)
	}
	return t, off, in, ok
}

// leaf calls visit for the numbers of a type in memory, in order.
func (m *machine) leaf(t *typ, off uint64, shared bool, in rows, visit func(t *typ, off uint64)) {
	if t.number() {
		visit(t, off)
		return
	}
	for i := range t.n {
		m.leaf(t.part(i), off+m.offset(t, uint64(i), shared, in), shared, m.inside(t, uint64(i), shared, in), visit)
	}
}

// reach checks an access to one number of memory.
func (v *variable) reach(t *typ, off uint64, ok bool, index int) *fault {
	size := t.width / 8
	if t.op == spirv.OpTypeBool {
		size = 4
	}
	if len(v.bytes) > 0 && reflect.ValueOf(v.bytes).Pointer()%uintptr(size) != 0 && v.binding != outcome.NoBinding {
		return &fault{outcome.Misaligned, v.binding, off, index}
	}
	if !ok || off > uint64(len(v.bytes)) || size > uint64(len(v.bytes))-off {
		return &fault{outcome.OutOfBounds, v.binding, off, index}
	}
	return nil
}

func (v *variable) get(t *typ, off uint64) uint64 {
	if t.op == spirv.OpTypeBool {
		if v.bytes[off]|v.bytes[off+1]|v.bytes[off+2]|v.bytes[off+3] != 0 {
			return 1
		}
		return 0
	}
	bits := uint64(0)
	for k := range t.width / 8 {
		bits |= uint64(v.bytes[off+k]) << (8 * k)
	}
	return bits
}

func (v *variable) put(t *typ, off, bits uint64) {
	width := t.width
	if t.op == spirv.OpTypeBool {
		width, bits = 32, -bits
	}
	for k := range width / 8 {
		v.bytes[off+k] = byte(bits >> (8 * k))
	}
}

// nowhere is the fault of an access by a pointer to nothing.
var nowhere = &fault{outcome.OutOfBounds, outcome.NoBinding, 0, 0}

// load reads the target of a pointer.
func (m *machine) load(p *pointer) (value, *fault) {
	if p == nil {
		return value{}, nowhere
	}
	v := p.variable
	t, off, in, ok := m.place(p)
	if !v.inMemory() {
		if !ok {
			return value{}, &fault{outcome.OutOfBounds, outcome.NoBinding, off, 0}
		}
		x := v.value
		for _, i := range p.path {
			x = x.parts[i]
		}
		return x, nil
	}

	var bad *fault
	var numbers []uint64
	m.leaf(t, off, v.class == spirv.StorageClassWorkgroup, in, func(t *typ, off uint64) {
		if bad == nil {
			bad = v.reach(t, off, ok, len(numbers))
		}
		if bad == nil {
			numbers = append(numbers, v.get(t, off))
		}
	})

	if bad != nil {
		return value{}, bad
	}

	return build(t, &numbers), nil
}

// build makes a value of the numbers in it.
func build(t *typ, numbers *[]uint64) value {
	if t.number() {
		v := value{bits: (*numbers)[0]}
		*numbers = (*numbers)[1:]
		return v
	}
	parts := make([]value, t.n)
	for i := range parts {
		parts[i] = build(t.part(i), numbers)
	}
	return value{parts: parts}
}

// flatten is the opposite of build.
func flatten(t *typ, v value, numbers []uint64) []uint64 {
	if t.number() {
		return append(numbers, v.bits)
	}
	for i := range t.n {
		numbers = flatten(t.part(i), v.parts[i], numbers)
	}
	return numbers
}

// store writes the target of a pointer: number by number, until one is out of
// range.
func (m *machine) store(p *pointer, x value) *fault {
	if p == nil {
		return nowhere
	}
	v := p.variable
	t, off, in, ok := m.place(p)
	if !v.inMemory() {
		if !ok {
			return &fault{outcome.OutOfBounds, outcome.NoBinding, off, 0}
		}
		path := make([]uint32, len(p.path))
		for k, i := range p.path {
			path[k] = uint32(i)
		}
		v.value = v.value.with(path, x)
		return nil
	}

	var bad *fault
	numbers, k := flatten(t, x, nil), 0
	m.leaf(t, off, v.class == spirv.StorageClassWorkgroup, in, func(t *typ, off uint64) {
		if bad == nil {
			if bad = v.reach(t, off, ok, k); bad == nil {
				v.put(t, off, numbers[k])
			}
		}
		k++
	})

	return bad
}

// arrayLength is the number of elements in the binding of the array at the end of a
// block.
func (m *machine) arrayLength(p *pointer, member uint32) uint64 {
	t, off, _, _ := m.place(p)
	off += m.offset(t, uint64(member), false, rows{})
	stride := m.offset(t.members[member], 1, false, rows{})
	n := uint64(len(p.variable.bytes))
	if n < off {
		return 0
	}
	return (n - off) / stride
}

// atomicOp does an atomic operation and returns the old value.
func (m *machine) atomicOp(in *spirv.Inst, p *pointer, operands []uint64) (uint64, *fault) {
	if p == nil {
		return 0, nowhere
	}
	v := p.variable
	t, off, _, ok := m.place(p)
	if bad := v.reach(t, off, ok, 0); bad != nil {
		return 0, bad
	}

	old := v.get(t, off)
	a := uint64(0)
	if len(operands) > 0 {
		a = operands[0]
	}

	w := t.width
	next := old
	switch in.Op {
	case spirv.OpAtomicLoad:
	case spirv.OpAtomicStore, spirv.OpAtomicExchange:
		next = a

	case spirv.OpAtomicCompareExchange:
		if old == operands[1] {
			next = a
		}

	case spirv.OpAtomicIIncrement:
		next = old + 1
	case spirv.OpAtomicIDecrement:
		next = old - 1

	case spirv.OpAtomicIAdd:
		next = old + a
	case spirv.OpAtomicISub:
		next = old - a

	case spirv.OpAtomicSMin:
		if signed(a, w) < signed(old, w) {
			next = a
		}

	case spirv.OpAtomicSMax:
		if signed(a, w) > signed(old, w) {
			next = a
		}

	case spirv.OpAtomicUMin:
		next = min(old, a)
	case spirv.OpAtomicUMax:
		next = max(old, a)

	case spirv.OpAtomicAnd:
		next = old & a
	case spirv.OpAtomicOr:
		next = old | a

	case spirv.OpAtomicXor:
		next = old ^ a
	case spirv.OpAtomicFAddEXT:
		next = fromFloat(toFloat(old, w)+toFloat(a, w), w)

	default:
		panic(fmt.Errorf("the atomic %v", in.Op))
	}

	if in.Op != spirv.OpAtomicLoad {
		v.put(t, off, next&mask(w))
	}

	return old, nil
}
