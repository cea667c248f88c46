package librarytest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// ones are n numbers from [-1, 1).
func ones(r *rand.Rand, n uint32) []float32 { return scaled(r, n, 1) }

func scaled(r *rand.Rand, n uint32, by float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32((2*r.Float64() - 1) * by)
	}
	return out
}

// bits are n words of any value.
func bits(r *rand.Rand, n uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = r.Uint32()
	}
	return out
}

var special = []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}

// mixed are n numbers of which some are not ordinary.
func mixed(r *rand.Rand, n uint32) []float32 {
	out := scaled(r, n, 100)
	for i := range out {
		if r.IntN(8) == 0 {
			out[i] = special[r.IntN(len(special))]
		}
	}
	return out
}

// coarse are n numbers of which many are equal; some are not ordinary.
func coarse(r *rand.Rand, n uint32) []float32 {
	out := make([]float32, n)
	odd := r.IntN(3) == 0
	for i := range out {
		out[i] = float32(r.IntN(41)-20) / 8
		if odd && r.IntN(16) == 0 {
			out[i] = special[r.IntN(len(special))]
		}
	}
	return out
}

// upTo is a number from 0 to n, mostly small.
func upTo(r *rand.Rand, n uint32) uint32 {
	if r.IntN(2) == 0 {
		return r.Uint32N(min(n, 40) + 1)
	}
	return r.Uint32N(n + 1)
}

// slack is a binding's unused rest.
func slack(r *rand.Rand) uint32 {
	if r.IntN(2) == 0 {
		return 0
	}
	return r.Uint32N(5)
}

const q8Bytes = 34

// q8 are n blocks of q8_0 with weights of at most about 1.
func q8(r *rand.Rand, n uint32) []byte {
	out := make([]byte, q8Bytes*n)
	for at := 0; at < len(out); at += q8Bytes {
		binary.LittleEndian.PutUint16(out[at:], blockScale(r, 3)) // 2^-12 to 2^-6
		for i := at + 2; i < at+q8Bytes; i++ {
			out[i] = byte(r.Uint32())
		}
	}
	return out
}

// blockScale is a scale of a block, an f16: with an exponent from lowest on, or
// subnormal, or below 0.
func blockScale(r *rand.Rand, lowest int) uint16 {
	scale := uint16(r.IntN(6)+lowest)<<10 | uint16(r.IntN(1<<10))
	switch r.IntN(16) {
	case 0:
		scale = uint16(r.IntN(1 << 10))
	case 1:
		scale |= 1 << 15
	}
	return scale
}

// weight is element i of blocks of q8_0.
func weight(blocks []byte, i uint32) float64 {
	block := blocks[i/32*q8Bytes:]
	return half(binary.LittleEndian.Uint16(block)) * float64(int8(block[2+i%32]))
}

// half is the value of a finite f16.
func half(bits uint16) float64 {
	exponent := int(bits >> 10 & 31)
	v := float64(bits & 0x3FF)
	if exponent > 0 {
		v += 1 << 10
	} else {
		exponent = 1
	}
	if bits>>15 != 0 {
		v = -v
	}
	return math.Ldexp(v, exponent-25)
}
