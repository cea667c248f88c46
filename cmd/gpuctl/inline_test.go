package main

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/cmd/gpuctl/npy"
	"capgpu/program"
)

func TestInlineArgs(t *testing.T) {
	i := info{Name: "p", InlineBytes: 16, Inline: []program.Field{
		{Name: "n", Type: "u32", Off: 0}, {Name: "eps", Type: "f32", Off: 4}, {Name: "big", Type: "i64", Off: 8},
	}}

	block, err := inlineArgs(i, []string{"eps=0.5", "0x10", "i64:-1"})
	require.NoError(t, err)
	require.Equal(t, uint32(16), binary.LittleEndian.Uint32(block))
	require.Equal(t, float32(0.5), math.Float32frombits(binary.LittleEndian.Uint32(block[4:])))
	require.Equal(t, uint64(math.MaxUint64), binary.LittleEndian.Uint64(block[8:]))

	for _, args := range [][]string{nil, {"1", "2"}, {"1", "2", "3", "4"}, {"x=1", "2", "3"}, {"n=1", "n=2", "3"}, {"-1", "2", "3"}, {"f32:1", "2", "3"}, {"1", "x", "3"}} {
		_, err := inlineArgs(i, args)
		require.Error(t, err, "%q", args)
	}

	untyped := info{Name: "p", InlineBytes: 6}
	block, err = inlineArgs(untyped, []string{"u32:7", "f16:1.5"})
	require.NoError(t, err)
	require.Equal(t, []byte{7, 0, 0, 0, 0, 0x3e}, block)
	for _, args := range [][]string{nil, {"7", "8"}, {"u32:7"}, {"u32:x", "u16:1"}} {
		_, err := inlineArgs(untyped, args)
		require.Error(t, err, "%q", args)
	}
}

// TestHalf: every 16-bit float survives the conversion to a number and back, and
// random ones equal their source.
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		v := halfValue(uint16(h))
		if math.IsNaN(v) {
			continue
		}
		bits, ok := halfBits(v)
		require.True(t, ok, "%#x", h)
		require.Equal(t, uint64(h), bits)
	}

	for _, v := range []float64{65536, 1e-9, 1.0001, math.NaN()} {
		_, ok := halfBits(v)
		require.False(t, ok, "%v", v)
	}

	for n := range uint64(2048) {
		require.Equal(t, float64(n)/2048, halfValue(half(n)))
	}

	_, ok := parseValue(npy.F16, "65504")
	require.True(t, ok)
	_, ok = parseValue(npy.F16, "65505")
	require.False(t, ok)
}
