package rpcguardtest

import (
	"math"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
	capschema "capnproto.org/go/capnp/v3/std/capnp/schema"
)

// maxValueDepth bounds lists of structs in structs.
const maxValueDepth = 3

// number is small, or round, or at an edge.
func (g *Generator) number(name string) uint64 {
	if usual := g.c.Numbers[name]; len(usual) > 0 && g.rng.IntN(8) > 0 {
		return usual[g.rng.IntN(len(usual))]
	}

	switch g.rng.IntN(16) {
	case 0:
		return g.rng.Uint64()
	case 1:
		return math.MaxUint64 - uint64(g.rng.IntN(3))
	case 2:
		return 1 << g.rng.IntN(64)
	case 3, 4:
		return 4096 * uint64(g.rng.IntN(8))
	case 5:
		return uint64(g.rng.IntN(1 << 17))
	default:
		return uint64(g.rng.IntN(8))
	}
}

func (g *Generator) text(name string) string {
	if usual := g.c.Texts[name]; len(usual) > 0 && g.rng.IntN(8) > 0 {
		return usual[g.rng.IntN(len(usual))]
	}
	return string(g.bytes(40))
}

func (g *Generator) bytes(n int) []byte {
	b := make([]byte, g.rng.IntN(n))
	for i := range b {
		b[i] = byte(g.rng.Uint32())
	}
	return b
}

// fill puts values of the right types into a struct.
func (g *Generator) fill(s capnp.Struct, t *structType, depth int) {
	variant := uint16(noVariant)
	if t.discriminants > 0 {
		variant = uint16(g.rng.IntN(int(t.discriminants)))
		if g.rng.IntN(40) == 0 {
			variant = uint16(g.rng.IntN(100))
		}
		s.SetUint16(t.discriminant, variant)
	}

	for _, f := range t.fields {
		switch {
		case f.variant != noVariant && f.variant != variant:
		case f.group != 0:
			g.fill(s, g.c.Schema.structs[f.group], depth)
		default:
			g.fillSlot(s, f, depth)
		}
	}
}

func (g *Generator) fillSlot(s capnp.Struct, f field, depth int) {
	at := f.offset
	switch f.typ.kind {
	case capschema.Type_Which_void:
	case capschema.Type_Which_bool:
		s.SetBit(capnp.BitOffset(at), g.rng.IntN(2) == 0)
	case capschema.Type_Which_int8, capschema.Type_Which_uint8:
		s.SetUint8(capnp.DataOffset(at), uint8(g.number(f.name)))
	case capschema.Type_Which_int16, capschema.Type_Which_uint16, capschema.Type_Which_enum:
		s.SetUint16(capnp.DataOffset(at*2), uint16(g.number(f.name)))
	case capschema.Type_Which_int32, capschema.Type_Which_uint32, capschema.Type_Which_float32:
		s.SetUint32(capnp.DataOffset(at*4), uint32(g.number(f.name)))
	case capschema.Type_Which_int64, capschema.Type_Which_uint64, capschema.Type_Which_float64:
		s.SetUint64(capnp.DataOffset(at*8), g.number(f.name))
	default:
		if g.rng.IntN(12) > 0 {
			check(s.SetPtr(uint16(at), g.pointer(s.Segment(), f.name, f.typ, depth)))
		}
	}
}

func (g *Generator) pointer(seg *capnp.Segment, name string, t fieldType, depth int) capnp.Ptr {
	switch t.kind {
	case capschema.Type_Which_text:
		v, err := capnp.NewText(seg, g.text(name))
		check(err)
		return v.ToPtr()
	case capschema.Type_Which_data:
		v, err := capnp.NewData(seg, g.bytes(200))
		check(err)
		return v.ToPtr()
	case capschema.Type_Which_structType:
		v, err := capnp.NewStruct(seg, g.c.Schema.structs[t.id].size)
		check(err)
		if depth > 0 {
			g.fill(v, g.c.Schema.structs[t.id], depth-1)
		}
		return v.ToPtr()
	case capschema.Type_Which_interface:
		g.caps = append(g.caps, t.id)
		return capnp.NewInterface(seg, capnp.CapabilityID(len(g.caps)-1)).ToPtr()
	case capschema.Type_Which_list:
		return g.list(seg, name, *t.elem, depth)
	default:
		return capnp.Ptr{}
	}
}

func (g *Generator) list(seg *capnp.Segment, name string, elem fieldType, depth int) capnp.Ptr {
	n := int32(g.rng.IntN(4))
	switch elem.kind {
	case capschema.Type_Which_structType:
		t := g.c.Schema.structs[elem.id]
		l, err := capnp.NewCompositeList(seg, t.size, n)
		check(err)
		for i := range l.Len() {
			if depth > 0 {
				g.fill(l.Struct(i), t, depth-1)
			}
		}
		return l.ToPtr()
	case capschema.Type_Which_uint32:
		l, err := capnp.NewUInt32List(seg, n)
		check(err)
		for i := range l.Len() {
			l.Set(i, uint32(g.number(name)))
		}
		return l.ToPtr()
	case capschema.Type_Which_uint64:
		l, err := capnp.NewUInt64List(seg, n)
		check(err)
		for i := range l.Len() {
			l.Set(i, g.number(name))
		}
		return l.ToPtr()
	default:
		l, err := capnp.NewPointerList(seg, n)
		check(err)
		for i := range l.Len() {
			check(l.Set(i, g.pointer(seg, name, elem, depth-1)))
		}
		return l.ToPtr()
	}
}

// capTable describes what the arguments named, in order.
func (g *Generator) capTable(p rpccp.Payload) error {
	if g.rng.IntN(60) == 0 {
		g.caps = append(g.caps, 0) // one too many
	}
	table, err := p.NewCapTable(int32(len(g.caps)))
	if err != nil {
		return err
	}
	for i, want := range g.caps {
		if err := g.descriptor(table.At(i), want); err != nil {
			return err
		}
	}
	return nil
}

func (g *Generator) descriptor(d rpccp.CapDescriptor, want uint64) error {
	switch g.rng.IntN(24) {
	case 0:
		d.SetNone()
	case 1:
		d.SetSenderHosted(uint32(g.rng.IntN(6)))
	case 2:
		d.SetSenderPromise(uint32(g.rng.IntN(6)))
	case 3:
		_, err := d.NewThirdPartyHosted()
		return err
	case 4, 5:
		d.SetReceiverHosted(g.export())
	default:
		p, ok := g.promiseOf(want)
		if !ok {
			d.SetNone()
			return nil
		}
		return SetPromise(d.NewReceiverAnswer, p.question, p.path)
	}

	return nil
}
