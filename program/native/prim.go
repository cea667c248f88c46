package native

import (
	"encoding/binary"
	"math"
)

// The functions of prim_amd64.go in Go: for other machines, and as the model for
// tests of the assembly.

func fillGo(dst []uint32, v uint32) {
	for i := range dst {
		dst[i] = v
	}
}

func addGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// The conversions prevent the compiler from fusing, on machines where it would.

func saxpyGo(dst, x []float32, a float32) {
	for i := range dst {
		dst[i] = float32(a*x[i]) + dst[i]
	}
}

func scaleGo(dst, x []float32, s float32) {
	for i := range dst {
		dst[i] = x[i] * s
	}
}

// scaleHeadsGo scales each dim elements by the inverse of their total.
func scaleHeadsGo(dst, x, total []float32, dim int) {
	for i, t := range total {
		scaleGo(dst[i*dim:][:dim], x[i*dim:][:dim], 1/t)
	}
}

func scaleMulGo(dst, x, w []float32, s float32) {
	for i := range dst {
		dst[i] = x[i] * s * w[i]
	}
}

func normGo(dst, x, w, b []float32, mean, s float32) {
	for i := range dst {
		dst[i] = float32((x[i]-mean)*s*w[i]) + b[i]
	}
}

func rotateGo(dst, c, s []float32) {
	for i := 0; i+1 < len(dst); i += 2 {
		p, q := dst[i], dst[i+1]
		dst[i] = float32(p*c[i]) + float32(q*s[i])
		dst[i+1] = float32(q*c[i+1]) + float32(p*s[i+1])
	}
}

func rotateHalvesGo(x, c, s []float32) {
	for half := len(c); half > 0 && len(x) >= 2*half; x = x[2*half:] {
		for i := range half {
			p, q := x[i], x[half+i]
			x[i] = float32(p*c[i]) - float32(q*s[i])
			x[half+i] = float32(p*s[i]) + float32(q*c[i])
		}
	}
}

func expSumGo(dst, x []float32, sub float32) (sum float32) {
	for i := range dst {
		e := float32(math.Exp(float64(x[i] - sub)))
		dst[i] = e
		sum += e
	}
	return sum
}

func swigluGo(dst, a, b []float32) {
	for i := range dst {
		v := a[i]
		dst[i] = v / (1 + float32(math.Exp(float64(-v)))) * b[i]
	}
}

func sumGo(x []float32) float32 {
	var s [4]float32
	for len(x) >= 4 {
		s[0] += x[0]
		s[1] += x[1]
		s[2] += x[2]
		s[3] += x[3]
		x = x[4:]
	}
	for _, v := range x {
		s[0] += v
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

func sumSquaresGo(x []float32, mean float32) float32 {
	var s [4]float32
	for i, v := range x {
		d := v - mean
		s[i&3] += d * d
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

// largestGo ignores NaN; without a number it is -Inf.
func largestGo(x []float32) float32 {
	largest := float32(math.Inf(-1))
	for _, v := range x {
		if v > largest {
			largest = v
		}
	}
	return largest
}

func findAboveGo(x []float32, t float32) int {
	for i, v := range x {
		if v > t {
			return i
		}
	}
	return -1
}

// firstNumberGo is the first index without NaN, or -1.
func firstNumberGo(x []float32) int {
	for i, v := range x {
		if v == v {
			return i
		}
	}
	return -1
}

func dotGo(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	b = b[:len(a)]
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i := range a {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

func dotRowsGo(y, m, x []float32, stride int) {
	for r := range y {
		y[r] = dotGo(m[r*stride:][:len(x)], x)
	}
}

func axpyRowsGo(acc, m, p []float32, stride int) {
	for r, f := range p {
		for i, v := range m[r*stride:][:len(acc)] {
			acc[i] += f * v
		}
	}
}

const (
	q8Values = 32
	q8Bytes  = 34
)

func dotRowsQ8Go(y []float32, w []byte, x []float32) {
	for r := range y {
		var s float32
		for i := 0; i < len(x); i += q8Values {
			var b float32
			for j, v := range x[i : i+q8Values] {
				b += v * float32(int8(w[2+j]))
			}
			s += b * f16(binary.LittleEndian.Uint16(w))
			w = w[q8Bytes:]
		}
		y[r] = s
	}
}

func expandQ8Go(dst []float32, w []byte) {
	for len(dst) > 0 {
		d := f16(binary.LittleEndian.Uint16(w))
		for j := range q8Values {
			dst[j] = d * float32(int8(w[2+j]))
		}
		dst, w = dst[q8Values:], w[q8Bytes:]
	}
}

// f16 is the value of an IEEE half.
func f16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp, frac := uint32(h>>10)&31, uint32(h)&1023
	switch exp {
	case 0:
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 31:
		if frac != 0 {
			frac |= 512 // quiet, as the processor makes it
		}
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

func gemm1x32Go(k int, a, b []float32, ldb int, c []float32, add int) {
	c = c[:32]
	if add == 0 {
		clear(c)
	}
	for i := range k {
		f := a[i]
		for j, v := range b[i*ldb:][:32] {
			c[j] += f * v
		}
	}
}
