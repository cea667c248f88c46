package lanetest

import (
	"fmt"

	"capgpu/program/spirv"
)

// typ is a type of the module.
type typ struct {
	id      spirv.ID
	op      spirv.Opcode
	width   uint64 // bits of a number; a bool has 1
	signed  bool
	elem    *typ // of vectors, arrays and pointers
	n       int  // components, elements or members
	members []*typ
	class   spirv.StorageClass // of a pointer
}

// typ is the type that id declares.
func (m *machine) typ(id spirv.ID) *typ {
	if t := m.types[id]; t != nil {
		return t
	}

	d := m.module.Def(id)
	if d == nil {
		panic(fmt.Errorf("%%%d is no type", id))
	}

	t := &typ{id: id, op: d.Op}
	switch d.Op {
	case spirv.OpTypeVoid:
	case spirv.OpTypeBool:
		t.width = 1

	case spirv.OpTypeInt:
		t.width, t.signed = uint64(d.Args[0]), d.Args[1] == 1
	case spirv.OpTypeFloat:
		t.width = uint64(d.Args[0])

	case spirv.OpTypeVector:
		t.elem, t.n = m.typ(d.Arg(0)), int(d.Args[1])
	case spirv.OpTypeMatrix:
		t.elem, t.n = m.typ(d.Arg(0)), int(d.Args[1])
	case spirv.OpTypeArray:
		t.elem, t.n = m.typ(d.Arg(0)), int(m.constant(d.Arg(1)).bits)

	case spirv.OpTypeRuntimeArray:
		t.elem = m.typ(d.Arg(0))
	case spirv.OpTypeStruct:
		t.n = len(d.Args)
		for i := range d.Args {
			t.members = append(t.members, m.typ(d.Arg(i)))
		}

	case spirv.OpTypePointer:
		t.class, t.elem = spirv.StorageClass(d.Args[0]), m.typ(d.Arg(1))
	default:
		panic(fmt.Errorf("the type %v", d.Op))
	}

	m.types[id] = t
	return t
}

func (t *typ) number() bool {
	return t.op == spirv.OpTypeInt || t.op == spirv.OpTypeFloat || t.op == spirv.OpTypeBool
}

// scalar is the type of the components.
func (t *typ) scalar() *typ {
	if t.op == spirv.OpTypeVector {
		return t.elem
	}
	return t
}

// part is the type of member or element i.
func (t *typ) part(i int) *typ {
	if t.op == spirv.OpTypeStruct {
		return t.members[i]
	}
	return t.elem
}

// value is a value: bits of a number, cut to its width and 1 for true; parts of a
// composite. Values do not change once made.
type value struct {
	bits  uint64
	parts []value
	ptr   *pointer
}

// components are the numbers of a scalar or vector.
func (v value) components() []uint64 {
	if v.parts == nil {
		return []uint64{v.bits}
	}
	out := make([]uint64, len(v.parts))
	for i, p := range v.parts {
		out[i] = p.bits
	}
	return out
}

// of makes a scalar or vector of type t from its components.
func of(t *typ, bits []uint64) value {
	if t.op != spirv.OpTypeVector {
		return value{bits: bits[0]}
	}
	parts := make([]value, len(bits))
	for i, b := range bits {
		parts[i].bits = b
	}
	return value{parts: parts}
}

// zero is the value of OpConstantNull, and of OpUndef.
func zero(t *typ) value {
	if t.number() {
		return value{}
	}
	parts := make([]value, t.n)
	for i := range parts {
		parts[i] = zero(t.part(i))
	}
	return value{parts: parts}
}

// with is v with the part at path replaced.
func (v value) with(path []uint32, part value) value {
	if len(path) == 0 {
		return part
	}
	parts := append([]value(nil), v.parts...)
	parts[path[0]] = parts[path[0]].with(path[1:], part)
	return value{parts: parts}
}

// constant is the value of a constant, with the launch's and the manifest's values.
func (m *machine) constant(id spirv.ID) value {
	v, ok := m.constants[id]
	if !ok {
		v = m.makeConstant(m.module.Def(id))
		m.constants[id] = v
	}
	return v
}

func (m *machine) makeConstant(d *spirv.Inst) value {
	t := m.typ(d.Type)
	switch d.Op {
	case spirv.OpConstantTrue:
		return value{bits: 1}

	case spirv.OpConstantFalse:
		return value{}
	case spirv.OpConstant:
		return value{bits: literal(d) & mask(t.width)}

	case spirv.OpSpecConstant, spirv.OpSpecConstantTrue, spirv.OpSpecConstantFalse:
		return value{bits: m.special(d) & mask(t.width)}
	case spirv.OpConstantNull, spirv.OpUndef:
		return zero(t)

	case spirv.OpConstantComposite, spirv.OpSpecConstantComposite:
		parts := make([]value, len(d.Args))
		for i := range parts {
			parts[i] = m.constant(d.Arg(i))
		}
		return value{parts: parts}

	case spirv.OpSpecConstantOp:
		in := &spirv.Inst{Op: spirv.Opcode(d.Args[0]), Type: d.Type, Result: d.Result, Args: d.Args[1:]}
		v, bad := m.compute(in, m.constant)
		if bad >= 0 {
			panic(fmt.Errorf("the constant %%%d is divided by zero", d.Result))
		}
		return v
	}

	panic(fmt.Errorf("the constant %v", d.Op))
}

func literal(d *spirv.Inst) uint64 {
	bits := uint64(d.Args[0])
	if len(d.Args) > 1 {
		bits |= uint64(d.Args[1]) << 32
	}
	return bits
}

// special is the value of a specialisation constant.
func (m *machine) special(d *spirv.Inst) uint64 {
	block := [3]uint32{m.options.Block.X, m.options.Block.Y, m.options.Block.Z}
	if i, ok := m.program.Sizes[d.Result]; ok {
		return uint64(block[i])
	}

	if d.Result == m.program.Dynamic {
		return uint64(m.options.SharedBytes / m.program.Info.DynamicElementBytes)
	}
	if v, ok := m.program.Constants[d.Result]; ok {
		return v
	}

	switch d.Op {
	case spirv.OpSpecConstantTrue:
		return 1
	case spirv.OpSpecConstantFalse:
		return 0
	}

	return literal(d)
}

func mask(width uint64) uint64 { return ^uint64(0) >> (64 - width) }
