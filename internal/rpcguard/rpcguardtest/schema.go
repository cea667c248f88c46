package rpcguardtest

import (
	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/schemas"
	capschema "capnproto.org/go/capnp/v3/std/capnp/schema"
)

// Schema is the generator's knowledge of a schema.
type Schema struct {
	interfaces map[uint64]*iface
	structs    map[uint64]*structType
	ids        []uint64 // of the interfaces, in the order of the file
}

type iface struct {
	methods []method // its own, then those it inherits
	own     int
	supers  []uint64
}

type method struct {
	iface  uint64
	number uint16
	params uint64      // of structs
	caps   []resultCap // capabilities of the results
}

// resultCap is a capability in the results of a method.
type resultCap struct {
	field uint16
	iface uint64
}

type structType struct {
	size          capnp.ObjectSize
	discriminants uint16 // 0: no union
	discriminant  capnp.DataOffset
	fields        []field
}

type field struct {
	name    string
	variant uint16 // noVariant: always there
	group   uint64 // of structs; 0: a slot
	offset  uint32 // in units of the type
	typ     fieldType
}

const noVariant = 0xffff

type fieldType struct {
	kind capschema.Type_Which
	id   uint64     // of a struct, interface or enum
	elem *fieldType // of a list
}

// LoadSchema reads the schema that a generated package registers; id is any of
// its types.
func LoadSchema(register func(*schemas.Registry), id uint64) *Schema {
	reg := new(schemas.Registry)
	register(reg)
	data, err := reg.Find(id)
	check(err)
	msg, err := capnp.Unmarshal(data)
	check(err)
	msg.ResetReadLimit(1 << 40)
	req, err := capschema.ReadRootCodeGeneratorRequest(msg)
	check(err)
	nodes, err := req.Nodes()
	check(err)
	s := &Schema{interfaces: map[uint64]*iface{}, structs: map[uint64]*structType{}}
	for i := range nodes.Len() {
		if n := nodes.At(i); n.Which() == capschema.Node_Which_structNode {
			s.structs[n.Id()] = readStruct(n.StructNode())
		}
	}

	for i := range nodes.Len() {
		if n := nodes.At(i); n.Which() == capschema.Node_Which_interface {
			s.interfaces[n.Id()] = s.readInterface(n)
			s.ids = append(s.ids, n.Id())
		}
	}

	for _, id := range s.ids {
		i := s.interfaces[id]
		for _, super := range i.supers {
			s.inherit(i, super)
		}
	}

	return s
}

func (s *Schema) inherit(i *iface, super uint64) {
	from := s.interfaces[super]
	i.methods = append(i.methods, from.methods[:from.own]...)
	for _, next := range from.supers {
		s.inherit(i, next)
	}
}

func (s *Schema) readInterface(n capschema.Node) *iface {
	methods, err := n.Interface().Methods()
	check(err)
	supers, err := n.Interface().Superclasses()
	check(err)
	i := &iface{own: methods.Len()}
	for j := range methods.Len() {
		m := method{iface: n.Id(), number: uint16(j), params: methods.At(j).ParamStructType()}
		for _, f := range s.structs[methods.At(j).ResultStructType()].fields {
			if f.group == 0 && f.typ.kind == capschema.Type_Which_interface {
				m.caps = append(m.caps, resultCap{field: uint16(f.offset), iface: f.typ.id})
			}
		}
		i.methods = append(i.methods, m)
	}

	for j := range supers.Len() {
		i.supers = append(i.supers, supers.At(j).Id())
	}

	return i
}

func readStruct(n capschema.Node_structNode) *structType {
	t := &structType{
		size:          capnp.ObjectSize{DataSize: capnp.Size(n.DataWordCount()) * 8, PointerCount: n.PointerCount()},
		discriminants: n.DiscriminantCount(),
		discriminant:  capnp.DataOffset(n.DiscriminantOffset() * 2),
	}
	fields, err := n.Fields()
	check(err)
	for i := range fields.Len() {
		in := fields.At(i)
		name, err := in.Name()
		check(err)
		f := field{name: name, variant: in.DiscriminantValue()}
		if in.Which() == capschema.Field_Which_group {
			f.group = in.Group().TypeId()
		} else {
			typ, err := in.Slot().Type()
			check(err)
			f.offset, f.typ = in.Slot().Offset(), readType(typ)
		}
		t.fields = append(t.fields, f)
	}

	return t
}

func readType(in capschema.Type) fieldType {
	t := fieldType{kind: in.Which()}
	switch t.kind {
	case capschema.Type_Which_structType:
		t.id = in.StructType().TypeId()
	case capschema.Type_Which_interface:
		t.id = in.Interface().TypeId()
	case capschema.Type_Which_enum:
		t.id = in.Enum().TypeId()
	case capschema.Type_Which_list:
		elem, err := in.List().ElementType()
		check(err)
		e := readType(elem)
		t.elem = &e
	}

	return t
}
