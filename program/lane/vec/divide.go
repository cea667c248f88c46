package vec

import (
	"math/bits"

	"capgpu/program/spirv"
)

// Division by one number for all lanes, for example of an index by a width, is a
// product with its reciprocal: for d of at least 2 and c = ⌈2⁶⁴/d⌉, x/d is the
// upper half of x·c for every x of 32 bits (Lemire, Kaser and Kurz, Faster
// remainder by direct computation, 2019).

// divideBy are the instructions that have a loop of their own for a scalar divisor.
var divideBy = map[spirv.Opcode]Op2S{
	spirv.OpUDiv: udivBy,
	spirv.OpUMod: umodBy,
	spirv.OpSDiv: sdivBy,
	spirv.OpSRem: sremBy,
}

func reciprocal(d uint32) uint64 { return ^uint64(0)/uint64(d) + 1 }

func divided(x uint32, c uint64) uint32 {
	hi, _ := bits.Mul64(c, uint64(x))
	return uint32(hi)
}

func udivBy(dst, a []uint32, s uint32) {
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	switch {
	case s == 0:
		Splat(dst, 0)
		return
	case s == 1:
		copy(dst, a)
		return
	}

	c := reciprocal(s)
	if accelerated {
		udivByAVX2(dst, a, c)
		return
	}

	for i, x := range a {
		dst[i] = divided(x, c)
	}
}

func umodBy(dst, a []uint32, s uint32) {
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	if s <= 1 {
		Splat(dst, 0)
		return
	}
	c := reciprocal(s)
	if accelerated {
		umodByAVX2(dst, a, c, s)
		return
	}
	for i, x := range a {
		dst[i] = x - divided(x, c)*s
	}
}

// sdivBy divides magnitudes. sign is 0 or -1; (x^sign)-sign is x or -x.
func sdivBy(dst, a []uint32, s uint32) {
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	sign := uint32(int32(s) >> 31)
	d := (s ^ sign) - sign
	switch {
	case s == 0:
		Splat(dst, 0)
		return
	case d == 1:
		for i, x := range a {
			dst[i] = (x ^ sign) - sign
		}
		return
	}

	c := reciprocal(d)
	if accelerated {
		sdivByAVX2(dst, a, c, sign)
		return
	}

	for i, x := range a {
		t := uint32(int32(x) >> 31)
		q := divided((x^t)-t, c)
		t ^= sign
		dst[i] = (q ^ t) - t
	}
}

// sremBy has the sign of a.
func sremBy(dst, a []uint32, s uint32) {
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	sign := uint32(int32(s) >> 31)
	d := (s ^ sign) - sign
	if d <= 1 {
		Splat(dst, 0)
		return
	}

	c := reciprocal(d)
	if accelerated {
		sremByAVX2(dst, a, c, d)
		return
	}

	for i, x := range a {
		t := uint32(int32(x) >> 31)
		m := (x ^ t) - t
		r := m - divided(m, c)*d
		dst[i] = (r ^ t) - t
	}
}
