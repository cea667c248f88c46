package main

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"

	"capgpu/cmd/gpuctl/npy"
)

// kinds are those of generated input.
var kinds = []string{"zeros", "range", "random"}

// madeInput is the input of an argument like zeros:1000 or range:64x64; nil if the
// argument is no such one, but a file's name.
func madeInput(name, arg string) (*input, error) {
	kind, shape, ok := strings.Cut(arg, ":")
	if !ok || !slices.Contains(kinds, kind) {
		return nil, nil
	}
	n, err := parseShape("--in "+arg, shape)
	if err != nil {
		return nil, &hinted{err, "If it is a file's name, write ./ before it."}
	}
	if n == nil {
		return nil, usagef("--in %s: write how many elements, as %s:1000 or %s:64x64", arg, kind, kind)
	}
	return &input{name: name, path: arg, made: kind, shape: n}, nil
}

// generator makes the values of generated input. math/rand/v2 fixes PCG, so a seed
// gives the same values on every machine.
func (in *input) generator(seed, stream uint64) func([]byte) error {
	pcg := rand.NewPCG(seed, stream)
	size := int(in.dtype.Bytes())
	next := uint64(0)
	return func(chunk []byte) error {
		if in.made == "zeros" {
			clear(chunk)
			return nil
		}
		for i := 0; i+size <= len(chunk); i += size {
			if in.made == "range" {
				putCount(chunk[i:i+size], in.dtype, next)
				next++
				continue
			}
			putRandom(chunk[i:i+size], in.dtype, pcg.Uint64())
		}
		return nil
	}
}

// putCount makes the value n: an integer cut to its type, or a float rounded to it.
func putCount(b []byte, t npy.DType, n uint64) {
	switch t {
	case npy.F32:
		n = uint64(math.Float32bits(float32(n)))
	case npy.F64:
		n = math.Float64bits(float64(n))
	case npy.F16:
		n = uint64(halfCount(n))
	}
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
}

// halfCount is n as a 16-bit float, to nearest even; infinity beyond its range.
func halfCount(n uint64) uint16 {
	if n >= 65520 {
		return 0x7C00
	}
	if n == 0 {
		return 0
	}
	top := bits.Len64(n) - 1
	if top <= 10 {
		return uint16((top+15)<<10) | uint16(n<<(10-top))&0x3ff
	}
	drop := top - 10
	m, rest, middle := n>>drop, n&(1<<drop-1), uint64(1)<<(drop-1)
	if rest > middle || rest == middle && m&1 == 1 {
		m++ // a carry goes into the exponent, as it should
	}
	return uint16(uint64(top+15)<<10 + m - 1024)
}

// putRandom makes a value of random bits: a float from 0 up to 1 that its type
// holds exactly, or an integer of the full range.
func putRandom(b []byte, t npy.DType, bits uint64) {
	switch t {
	case npy.F32:
		bits = uint64(math.Float32bits(float32(bits>>40)/(1<<24))) << 32
	case npy.F64:
		bits = math.Float64bits(float64(bits>>11) / (1 << 53))
	case npy.F16:
		bits = uint64(half(bits>>53)) << 48
	}
	bits >>= 64 - 8*len(b)
	for i := range b {
		b[i] = byte(bits >> (8 * i))
	}
}

// half is n/2048 as a 16-bit float, for n below 2048.
func half(n uint64) uint16 {
	if n == 0 {
		return 0
	}
	top := bits.Len64(n) - 1 // of 10 at most
	return uint16((top+4)<<10) | uint16(n<<(10-top))&0x3ff
}
