package kernelgen

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
)

type kind int

const (
	kindBool kind = iota
	kindU32
	kindI32
	kindF32
	kindU64
	kindI64
	kindF64
	kindStruct
	kindArray
)

// typ is a GLSL type. Types are made once; equal ones are the same pointer.
type typ struct {
	kind   kind
	name   string
	n      int    // components of a scalar or vector
	elem   *typ   // of a vector or array
	length int    // of an array
	fields []*typ // of a struct: f0, f1, …
}

// Scalars and vectors by kind and number of components less one.
var vectors = func() (all [kindF64 + 1][4]*typ) {
	scalar := [...]string{"bool", "uint", "int", "float", "uint64_t", "int64_t", "double"}
	vector := [...]string{"bvec", "uvec", "ivec", "vec", "u64vec", "i64vec", "dvec"}
	for k := kindBool; k <= kindF64; k++ {
		for n := range 4 {
			name := scalar[k]
			if n > 0 {
				name = vector[k] + string(rune('1'+n))
			}
			all[k][n] = &typ{kind: k, name: name, n: n + 1, elem: all[k][0]}
		}
		all[k][0].elem = all[k][0]
	}
	return all
}()

var (
	boolT = vectors[kindBool][0]
	uintT = vectors[kindU32][0]
	intT  = vectors[kindI32][0]
	fltT  = vectors[kindF32][0]
)

func (t *typ) isVector() bool { return t.kind < kindStruct && t.n > 1 }

// with is the type of as many components of another kind.
func (t *typ) with(k kind) *typ { return vectors[k][t.n-1] }

// scalars counts the scalars in a value.
func (t *typ) scalars() int {
	switch t.kind {
	case kindArray:
		return t.length * t.elem.scalars()
	case kindStruct:
		sum := 0
		for _, f := range t.fields {
			sum += f.scalars()
		}
		return sum
	}
	return t.n
}

// hasBool reports a type that cannot be in a buffer.
func (t *typ) hasBool() bool {
	switch t.kind {
	case kindArray:
		return t.elem.hasBool()
	case kindStruct:
		for _, f := range t.fields {
			if f.hasBool() {
				return true
			}
		}
	}
	return t.kind == kindBool
}

// layout is size and alignment in bytes by the rules of std430; GLSL 4.60, 7.6.2.2.
func (t *typ) layout() (size, align int) { return t.layoutIf(3) }

// layoutIf is layout with vectors of three of another size, in components.
func (t *typ) layoutIf(three int) (size, align int) {
	switch t.kind {
	case kindArray:
		s, a := t.elem.layoutIf(three)
		return t.length * roundUp(s, a), a
	case kindStruct:
		for _, f := range t.fields {
			s, a := f.layoutIf(three)
			size = roundUp(size, a) + s
			align = max(align, a)
		}
		return roundUp(size, align), align
	}

	unit := 4
	if t.kind >= kindU64 {
		unit = 8
	}
	if t.n == 3 {
		return three * unit, 4 * unit
	}

	return t.n * unit, t.n * unit
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// fill writes a random value, in its layout, to the start of b.
func (t *typ) fill(b []byte, r *rand.Rand) {
	switch t.kind {
	case kindArray:
		s, a := t.elem.layout()
		for i := range t.length {
			t.elem.fill(b[i*roundUp(s, a):], r)
		}
		return
	case kindStruct:
		off := 0
		for _, f := range t.fields {
			s, a := f.layout()
			off = roundUp(off, a)
			f.fill(b[off:], r)
			off += s
		}
		return
	}
	for i := range t.n {
		switch t.kind {
		case kindF32:
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(randomFloat(r)))
		case kindF64:
			binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(float64(randomFloat(r))))
		case kindU64, kindI64:
			binary.LittleEndian.PutUint64(b[8*i:], r.Uint64()>>(r.UintN(4)*16))
		default:
			binary.LittleEndian.PutUint32(b[4*i:], randomWord(r))
		}
	}
}

// randomWord is small, large or special.
func randomWord(r *rand.Rand) uint32 {
	switch r.UintN(4) {
	case 0:
		return r.Uint32N(16)
	case 1:
		return [...]uint32{0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0xFFFF, 0x10000, 31, 32}[r.UintN(9)]
	default:
		return r.Uint32() >> (r.UintN(4) * 8)
	}
}

// randomFloat is 0, or between 2^-10 and 2^12, with few or many bits.
func randomFloat(r *rand.Rand) float32 {
	switch r.UintN(4) {
	case 0:
		return float32(r.IntN(17) - 8)
	case 1:
		return float32(r.IntN(2049)-1024) / 16
	}
	f := float32(math.Ldexp(1+r.Float64()*0.999, r.IntN(14)-6))
	if r.UintN(2) == 0 {
		return -f
	}
	return f
}

// structDecl is the declaration of a struct.
func structDecl(t *typ) string {
	var b strings.Builder
	b.WriteString("struct " + t.name + " {")
	for i, f := range t.fields {
		b.WriteString(" " + declarator(f, fieldName(i)) + ";")
	}
	b.WriteString(" };\n")
	return b.String()
}

func fieldName(i int) string { return "f" + string(rune('0'+i)) }

// declarator is "uint x", or "uint x[4]" for an array.
func declarator(t *typ, name string) string { return t.name + " " + name }
