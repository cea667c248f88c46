package quant

import (
	"encoding/binary"
	"math"

	"capgpu/gpuerr"
	"capgpu/model"
)

var le = binary.LittleEndian

// block is the number of elements in a block of Q8_0 and Q4_0.
const block = 32

// Encode stores src as a matrix of the given type with rows of cols elements. group
// is only for I8, and divides cols. It returns gpuerr.Invalid for rows that are not
// whole blocks, and for numbers that the type cannot hold: NaN, infinities, and
// scales beyond an F16.
func Encode(typ model.Type, rows, cols, group int, src []float32) (model.Tensor, error) {
	t := model.Tensor{Type: typ, Rows: rows, Cols: cols}
	if rows < 1 || cols < 1 || len(src)/cols != rows || len(src)%cols != 0 {
		return t, gpuerr.New(gpuerr.Invalid, "encode: %d elements are no %d rows of %d", len(src), rows, cols)
	}
	if per, _ := typ.Block(); cols%per != 0 {
		return t, gpuerr.New(gpuerr.Invalid, "encode: rows of %d elements are no whole blocks of %s, which have %d", cols, typ, per)
	}

	if typ == model.I8 {
		if group < 1 || cols%group != 0 {
			return t, gpuerr.New(gpuerr.Invalid, "encode: groups of %d do not divide rows of %d", group, cols)
		}
		t.Group = group
		t.Scales = make([]byte, len(src)/group*4)
	}

	for i, x := range src {
		if x-x != 0 {
			return t, gpuerr.New(gpuerr.Invalid, "encode: element %d is %g", i, x)
		}
	}

	t.Data = make([]byte, t.Bytes())
	ok := true
	switch typ {
	case model.F32:
		for i, x := range src {
			le.PutUint32(t.Data[4*i:], math.Float32bits(x))
		}

	case model.F16:
		for i, x := range src {
			h := F16(x)
			ok = ok && h&0x7C00 != 0x7C00
			le.PutUint16(t.Data[2*i:], h)
		}

	case model.BF16:
		for i, x := range src {
			h := BF16(x)
			ok = ok && h&0x7F80 != 0x7F80
			le.PutUint16(t.Data[2*i:], h)
		}

	case model.Q8_0:
		for i := 0; i < len(src)/block; i++ {
			ok = encodeQ8(t.Data[34*i:][:34], src[block*i:][:block]) && ok
		}

	case model.Q4_0:
		for i := 0; i < len(src)/block; i++ {
			ok = encodeQ4(t.Data[18*i:][:18], src[block*i:][:block]) && ok
		}

	case model.I8:
		for i := 0; i < len(src)/group; i++ {
			scale := encodeI8(t.Data[group*i:][:group], src[group*i:][:group])
			le.PutUint32(t.Scales[4*i:], math.Float32bits(scale))
		}

	default:
		return t, gpuerr.New(gpuerr.Invalid, "encode: there is no %s", typ)
	}

	if !ok {
		return t, gpuerr.New(gpuerr.Invalid, "encode: a number is beyond what %s can hold", typ)
	}

	return t, nil
}

// largest is the element of largest magnitude, the first of equals.
func largest(src []float32) (most float32) {
	for _, x := range src {
		if abs(x) > abs(most) {
			most = x
		}
	}
	return most
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// inverse is 1/d, and 0 if that is not finite.
func inverse(d float32) float32 {
	if id := 1 / d; id-id == 0 {
		return id
	}
	return 0
}

// signed rounds x to the nearest signed byte, halves away from zero.
func signed(x float32) int8 {
	return int8(min(max(math.Round(float64(x)), -127), 127))
}

func encodeQ8(dst []byte, src []float32) bool {
	d := abs(largest(src)) / 127
	id := inverse(d)
	h := F16(d)
	le.PutUint16(dst, h)
	for i, x := range src {
		dst[2+i] = byte(signed(x * id))
	}
	return h&0x7C00 != 0x7C00
}

func encodeQ4(dst []byte, src []float32) bool {
	d := largest(src) / -8
	id := inverse(d)
	h := F16(d)
	le.PutUint16(dst, h)
	nibble := func(x float32) byte { return byte(min(max(float32(x*id)+8.5, 0), 15)) }
	for i := range block / 2 {
		dst[2+i] = nibble(src[i]) | nibble(src[i+block/2])<<4
	}
	return h&0x7C00 != 0x7C00
}

func encodeI8(dst []byte, src []float32) (scale float32) {
	scale = abs(largest(src)) / 127
	id := inverse(scale)
	for i, x := range src {
		dst[i] = byte(signed(x * id))
	}
	return scale
}

// Decode returns all elements of a tensor, row after row. It returns gpuerr.Invalid
// if the length of Data or Scales does not fit the shape, and for packed types.
func Decode(t *model.Tensor) ([]float32, error) {
	if err := Check(t); err != nil {
		return nil, err
	}
	if t.Type.Packed() {
		return nil, gpuerr.New(gpuerr.Invalid, "%s is decoded by kernels only", t.Type)
	}
	out := make([]float32, t.Rows*t.Cols)
	for r := range t.Rows {
		Row(t, r, out[r*t.Cols:][:t.Cols])
	}
	return out, nil
}

// Check checks that the parts of a tensor have the lengths that its shape requires.
func Check(t *model.Tensor) error {
	per, _ := t.Type.Block()
	switch {
	case t.Type >= model.Types:
		return gpuerr.New(gpuerr.Invalid, "there is no %s", t.Type)
	case t.Rows < 1 || t.Cols < 1 || t.Rows > math.MaxInt/4/t.Cols || t.Cols%per != 0:
		return gpuerr.New(gpuerr.Invalid, "%d rows of %d cannot be stored as %s", t.Rows, t.Cols, t.Type)
	case len(t.Data) != t.Bytes():
		return gpuerr.New(gpuerr.Invalid, "%d bytes for %d rows of %d as %s", len(t.Data), t.Rows, t.Cols, t.Type)
	}

	if t.Type == model.I8 {
		if t.Group < 1 || t.Cols%t.Group != 0 || len(t.Scales) != t.Rows*t.Cols/t.Group*4 {
			return gpuerr.New(gpuerr.Invalid, "%d bytes of scales for %d rows of %d in groups of %d", len(t.Scales), t.Rows, t.Cols, t.Group)
		}
	} else if t.Group != 0 || t.Scales != nil {
		return gpuerr.New(gpuerr.Invalid, "%s has no scales apart", t.Type)
	}

	return nil
}

// Row is row r of a tensor that passes Check and is of no packed type; len(out) is t.Cols.
func Row(t *model.Tensor, r int, out []float32) {
	per, bytes := t.Type.Block()
	data := t.Data[r*t.Cols/per*bytes:][:t.Cols/per*bytes]
	switch t.Type {
	case model.F32:
		for i := range out {
			out[i] = math.Float32frombits(le.Uint32(data[4*i:]))
		}

	case model.F16:
		for i := range out {
			out[i] = FromF16(le.Uint16(data[2*i:]))
		}

	case model.BF16:
		for i := range out {
			out[i] = FromBF16(le.Uint16(data[2*i:]))
		}

	case model.Q8_0:
		for i := range out {
			b := data[i/block*34:]
			out[i] = FromF16(le.Uint16(b)) * float32(int8(b[2+i%block]))
		}

	case model.Q4_0:
		for i := range out {
			b := data[i/block*18:]
			n := b[2+i%(block/2)] >> (i % block / (block / 2) * 4) & 15
			out[i] = FromF16(le.Uint16(b)) * float32(int(n)-8)
		}

	case model.I8:
		for i := range out {
			scale := math.Float32frombits(le.Uint32(t.Scales[(r*t.Cols+i)/t.Group*4:]))
			out[i] = scale * float32(int8(data[i]))
		}
	}
}

// Vector is a tensor of one row as F32: itself if it is one, otherwise a new one.
func Vector(t *model.Tensor) (model.Tensor, error) {
	if t.Type == model.F32 {
		return *t, Check(t)
	}
	x, err := Decode(t)
	if err != nil {
		return model.Tensor{}, err
	}
	out := model.Tensor{Type: model.F32, Rows: t.Rows, Cols: t.Cols, Data: make([]byte, 4*len(x))}
	for i, v := range x {
		le.PutUint32(out.Data[4*i:], math.Float32bits(v))
	}
	return out, nil
}
