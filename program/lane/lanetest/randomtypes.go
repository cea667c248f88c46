package lanetest

import (
	"capgpu/program/spirv"
)

// tree is a type of random shape: a scalar or vector t, an array of n of parts[0],
// or a struct of parts.
type tree struct {
	t     shape
	n     int
	parts []*tree
}

// variableOf is a variable with its type.
type variableOf struct {
	id    spirv.ID
	t     *tree
	class spirv.StorageClass
}

// shape draws a scalar or vector type; bools allows types without a layout. A
// program has few types, mostly, so that values can be combined.
func (g *generator) shape(bools bool) shape {
	if g.n(8) < 6 && g.palette != nil {
		if s := g.palette[g.n(len(g.palette))]; bools || s.k != boolean {
			return s
		}
	}
	return g.anyShape(bools)
}

func (g *generator) anyShape(bools bool) shape {
	kinds := g.numbers()
	if bools {
		kinds = append(kinds, boolean)
	}
	s := shape{kinds[g.n(len(kinds))], 1}
	if n := g.n(8); n > 4 {
		s.n = n - 3
	}
	return s
}

func (g *generator) tree(depth int, bools bool) *tree {
	switch c := g.n(4); {
	case depth == 0 || c < 2:
		return &tree{t: g.shape(bools)}
	case c == 2:
		return &tree{n: 1 + g.n(4), parts: []*tree{g.tree(depth-1, bools)}}
	}
	t := &tree{}
	for range 1 + g.n(3) {
		t.parts = append(t.parts, g.tree(depth-1, bools))
	}
	return t
}

func (g *generator) scalar(k kind) spirv.ID {
	switch k {
	case boolean:
		return g.Bool()
	case u32:
		return g.Uint(32)
	case i32:
		return g.Int(32)
	case u64:
		return g.Uint(64)
	case i64:
		return g.Int(64)
	case f64:
		return g.Float(64)
	case u8, u16:
		return g.Uint(8 * int(k.bytes()))
	case i8, i16:
		return g.Int(8 * int(k.bytes()))
	case f16:
		return g.Float(16)
	}
	return g.Float(32)
}

func (g *generator) typ(t shape) spirv.ID {
	switch t.n {
	case 0:
		return g.Void()
	case 1:
		return g.scalar(t.k)
	}
	return g.Vec(g.scalar(t.k), t.n)
}

// typeOf is the type of a tree without layout.
func (g *generator) typeOf(t *tree) spirv.ID {
	if id := g.made.agg[t]; id != 0 {
		return id
	}

	var id spirv.ID
	switch {
	case t.parts == nil:
		return g.typ(t.t)
	case t.n > 0:
		id = g.Array(g.typeOf(t.parts[0]), g.U32(uint32(t.n)), 0)
	default:
		var members []spirv.ID
		for _, p := range t.parts {
			members = append(members, g.typeOf(p))
		}
		id = g.Struct(members...)
	}

	g.made.agg[t] = id
	return id
}

// bytes and align are a type's size and alignment in a buffer.
func (t *tree) bytes() uint32 {
	switch {
	case t.parts == nil:
		return t.t.k.bytes() * uint32(t.t.n)
	case t.n > 0:
		return t.parts[0].stride() * uint32(t.n)
	}
	offs := t.offsets()
	last := len(offs) - 1
	return offs[last] + t.parts[last].bytes()
}

func (t *tree) words() uint32 {
	if t.parts == nil {
		return t.t.k.bytes()
	}
	most := uint32(4)
	for _, p := range t.parts {
		most = max(most, p.words())
	}
	return most
}

// stride is the stride of an array of t: at least the minimum, and sometimes more.
func (t *tree) stride() uint32 {
	n := uint32(up(uint64(t.bytes()), uint64(t.words())))
	if len(t.parts) == 2 {
		n += t.words()
	}
	return n
}

// offsets are those of a struct's members.
func (t *tree) offsets() []uint32 {
	var offs []uint32
	end := uint32(0)
	for i, p := range t.parts {
		if i == 2 {
			end += 8
		}
		end = uint32(up(uint64(end), uint64(p.words())))
		offs = append(offs, end)
		end += p.bytes()
	}
	return offs
}

// laidOut is the type of a tree in a buffer.
func (g *generator) laidOut(t *tree) spirv.ID {
	if id := g.made.layouts[t]; id != 0 {
		return id
	}

	var id spirv.ID
	switch {
	case t.parts == nil:
		return g.typ(t.t)
	case t.n > 0:
		elem := g.laidOut(t.parts[0])
		id = g.Array(elem, g.U32(uint32(t.n)), t.parts[0].stride())
	default:
		var members []spirv.ID
		for _, p := range t.parts {
			members = append(members, g.laidOut(p))
		}
		id = g.Struct(members...)
		for i, off := range t.offsets() {
			g.MemberDecorate(id, i, spirv.DecorationOffset, off)
		}
	}

	g.made.layouts[t] = id
	return id
}

// number is a constant of a number type.
func (g *generator) number(k kind, v int) spirv.ID {
	switch k {
	case u32:
		return g.U32(uint32(v))
	case i32:
		return g.I32(int32(v))
	case u64:
		return g.U64(uint64(v))
	case i64:
		return g.I64(int64(v))
	case f64:
		return g.F64(float64(v))
	case f16:
		return g.literal(k, uint32(fromFloat(float64(v), 16)))
	case u8, i8, u16, i16:
		return g.literal(k, uint32(v))
	}
	return g.F32(float32(v))
}

// literal is a constant of 8 or 16 bits: its word continues the sign, or has zeros.
func (g *generator) literal(k kind, bits uint32) spirv.ID {
	unused := 32 - 8*k.bytes()
	if k == i8 || k == i16 {
		return g.Const(g.scalar(k), uint32(int32(bits<<unused)>>unused))
	}
	return g.Const(g.scalar(k), bits<<unused>>unused)
}

// odd is a constant of any type.
func (g *generator) odd(t shape) spirv.ID {
	if t.n > 1 {
		var parts []spirv.ID
		for range t.n {
			parts = append(parts, g.odd(shape{t.k, 1}))
		}
		return g.Composite(g.typ(t), parts...)
	}
	switch c := g.n(6); {
	case t.k == boolean:
		return g.BoolConst(c%2 == 1)
	case c == 0:
		return g.Null(g.typ(t))
	case c < 4:
		return g.number(t.k, g.n(24)-4)
	case t.k == f32:
		return g.F32(float32(oddFloats[g.n(len(oddFloats))]))
	case t.k == f16:
		return g.literal(f16, uint32(fromFloat(oddFloats[g.n(len(oddFloats))], 16)))
	case t.k.narrow():
		return g.literal(t.k, oddWords[g.n(len(oddWords))])
	case t.k == f64:
		return g.F64(oddFloats[g.n(len(oddFloats))])
	case t.k.long():
		w := oddWords[g.n(len(oddWords))]
		return g.Const(g.typ(t), w, oddWords[g.n(len(oddWords))])
	default:
		return g.Const(g.typ(t), oddWords[g.n(len(oddWords))])
	}
}

// splat is a vector, or scalar, with one constant in all components.
func (g *generator) splat(t shape, v int) spirv.ID {
	id := g.number(t.k, v)
	if t.n == 1 {
		return id
	}
	parts := make([]spirv.ID, t.n)
	for i := range parts {
		parts[i] = id
	}
	return g.Composite(g.typ(t), parts...)
}

func (g *generator) capabilities() {
	g.Capability(spirv.CapabilityGroupNonUniform, spirv.CapabilityGroupNonUniformVote, spirv.CapabilityGroupNonUniformArithmetic,
		spirv.CapabilityGroupNonUniformBallot, spirv.CapabilityGroupNonUniformShuffle, spirv.CapabilityGroupNonUniformShuffleRelative,
		spirv.CapabilityGroupNonUniformClustered, spirv.CapabilityGroupNonUniformQuad,
		spirv.CapabilityAtomicFloat32AddEXT)
	g.Extension("SPV_EXT_shader_atomic_float_add")
	if g.long {
		g.Capability(spirv.CapabilityInt64, spirv.CapabilityFloat64, spirv.CapabilityInt64Atomics)
	}
	if g.dots {
		g.Capability(spirv.CapabilityDotProduct, spirv.CapabilityDotProductInputAll, spirv.CapabilityDotProductInput4x8BitPacked)
		g.Extension("SPV_KHR_integer_dot_product")
	}
	if g.small {
		g.Capability(spirv.CapabilityInt8, spirv.CapabilityInt16, spirv.CapabilityFloat16,
			spirv.CapabilityStorageBuffer16BitAccess, spirv.CapabilityStorageBuffer8BitAccess)
		g.Extension("SPV_KHR_8bit_storage")
	}
}
