package modeltest

import (
	"encoding/binary"
	"math"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/program/library/librarytest"
)

// loading keeps the first error in a model's tensors.
type loading struct{ err error }

// matrix is a tensor as float64, by row.
func (l *loading) matrix(name string, t *model.Tensor, rows, cols int) [][]float64 {
	if l.err != nil {
		return make([][]float64, rows)
	}
	if t.Rows != rows || t.Cols != cols {
		l.err = gpuerr.New(gpuerr.Invalid, "%s: %d by %d, not %d by %d", name, t.Rows, t.Cols, rows, cols)
		return make([][]float64, rows)
	}

	flat, err := Floats(t)
	if err != nil {
		l.err = gpuerr.New(gpuerr.Invalid, "%s: %v", name, err)
		return make([][]float64, rows)
	}

	m := make([][]float64, rows)
	for i := range m {
		m[i] = flat[i*cols : (i+1)*cols]
	}

	return m
}

func (l *loading) vector(name string, t *model.Tensor, size int) []float64 {
	if row := l.matrix(name, t, 1, size)[0]; row != nil {
		return row
	}
	return make([]float64, size)
}

// Floats returns a tensor's elements, row after row, by the description of its type
// (model.Type; ggml-quants.c, dequantize_row_q8_0 and _q4_0).
func Floats(t *model.Tensor) ([]float64, error) {
	n := t.Rows * t.Cols
	per, size := t.Type.Block()
	if t.Rows < 1 || t.Cols < 1 || t.Cols%per != 0 || len(t.Data) != n/per*size {
		return nil, gpuerr.New(gpuerr.Invalid, "%d bytes of %s for %d by %d", len(t.Data), t.Type, t.Rows, t.Cols)
	}

	out := make([]float64, n)
	u16 := func(at int) uint16 { return binary.LittleEndian.Uint16(t.Data[at:]) }
	switch t.Type {
	case model.F32:
		for i := range out {
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
		}

	case model.F16:
		for i := range out {
			out[i] = half(u16(2 * i))
		}

	case model.BF16:
		for i := range out {
			out[i] = float64(math.Float32frombits(uint32(u16(2*i)) << 16))
		}

	case model.Q8_0:
		for i := range out {
			block, in := i/32*34, i%32
			out[i] = half(u16(block)) * float64(int8(t.Data[block+2+in]))
		}

	case model.Q4_0:
		for i := range out {
			block, in := i/32*18, i%32
			q := t.Data[block+2+in%16] >> (in / 16 * 4) & 15
			out[i] = half(u16(block)) * (float64(q) - 8)
		}

	case model.I8:
		if t.Group < 1 || t.Cols%t.Group != 0 || len(t.Scales) != 4*(n/t.Group) {
			return nil, gpuerr.New(gpuerr.Invalid, "groups of %d with %d bytes of scales for %d elements", t.Group, len(t.Scales), n)
		}
		for i := range out {
			scale := math.Float32frombits(binary.LittleEndian.Uint32(t.Scales[i/t.Group*4:]))
			out[i] = float64(int8(t.Data[i])) * float64(scale)
		}

	default:
		packed, ok := librarytest.BlockTypes[t.Type.String()]
		if !ok {
			return nil, gpuerr.New(gpuerr.Invalid, "%s is not known", t.Type)
		}
		return packed.Decode(t.Data), nil
	}

	return out, nil
}

// half is an IEEE 754 binary16.
func half(b uint16) float64 {
	sign, exp, frac := 1.0, int(b>>10&31), float64(b&1023)
	if b>>15 != 0 {
		sign = -1
	}
	switch {
	case exp == 0:
		return sign * math.Ldexp(frac, -24)
	case exp == 31 && frac == 0:
		return math.Inf(int(sign))
	case exp == 31:
		return math.NaN()
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}
