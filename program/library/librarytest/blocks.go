package librarytest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
)

// The block types of GGUF but for q8_0 and q4_0, in float64: a block at a time, in the
// order in which ggml describes them (ggml-common.h, block_*; ggml-quants.c,
// dequantize_row_*). The kernels decode an element at a time.

// BlockType is one of them.
type BlockType struct {
	Elements, Bytes int
	// scale, and low, if there is one, are the offsets of F16; lowest is the smallest
	// exponent of a scale with which the elements are about 1.
	scale, low int
	lowest     int
	decode     func(b []byte, out []float64)
}

// BlockTypes are by their names.
var BlockTypes = map[string]BlockType{
	"q4_1":   {32, 20, 0, 2, 6, decodeQ41},
	"q5_0":   {32, 22, 0, -1, 5, decodeQ50},
	"q5_1":   {32, 24, 0, 2, 5, decodeQ51},
	"q2_k":   {256, 84, 80, 82, 4, decodeQ2K},
	"q3_k":   {256, 110, 108, -1, 2, decodeQ3K},
	"q4_k":   {256, 144, 0, 2, 1, decodeQ4K},
	"q5_k":   {256, 176, 0, 2, 1, decodeQ5K},
	"q6_k":   {256, 210, 208, -1, 0, decodeQ6K},
	"iq4_nl": {32, 18, 0, -1, 3, decodeIQ4NL},
	"iq4_xs": {256, 136, 0, -1, 0, decodeIQ4XS},
	"mxfp4":  {32, 17, -1, -1, 0, decodeMXFP4},
}

// BlockNames are the names, sorted.
var BlockNames = []string{"iq4_nl", "iq4_xs", "mxfp4", "q2_k", "q3_k", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k"}

// Draw makes a block of any bits with scales so that its elements are about 1; some
// scales are zero, subnormal or negative.
func (t *BlockType) Draw(r *rand.Rand) []byte {
	b := make([]byte, t.Bytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}

	switch {
	case t.scale >= 0:
		binary.LittleEndian.PutUint16(b[t.scale:], blockScale(r, t.lowest))
	case r.IntN(16) == 0:
		b[0] = byte(r.IntN(4)) // subnormal elements
	default:
		b[0] = byte(118 + r.IntN(8))
	}

	if t.low >= 0 {
		binary.LittleEndian.PutUint16(b[t.low:], blockScale(r, t.lowest))
	}
	return b
}

// Shrink divides the elements of a block by 2^n, where its scales allow it exactly.
func (t *BlockType) Shrink(b []byte, n int) {
	if t.scale < 0 {
		b[0] -= byte(min(n, int(b[0])))
	}
	for _, at := range []int{t.scale, t.low} {
		if at < 0 {
			continue
		}
		if v := binary.LittleEndian.Uint16(b[at:]); int(v>>10&31) > n {
			binary.LittleEndian.PutUint16(b[at:], v-uint16(n)<<10)
		}
	}
}

// Decode returns the elements of whole blocks.
func (t *BlockType) Decode(data []byte) []float64 {
	out := make([]float64, len(data)/t.Bytes*t.Elements)
	for i := range len(data) / t.Bytes {
		t.decode(data[i*t.Bytes:][:t.Bytes], out[i*t.Elements:][:t.Elements])
	}
	return out
}

// storedBlocks takes a multiple of the elements of a block.
func storedBlocks(name string) stored {
	t := BlockTypes[name]
	return func(r *rand.Rand, n uint32) ([][]byte, func(uint32) float64) {
		var w []byte
		for range int(n)/t.Elements + int(slack(r)) {
			w = append(w, t.Draw(r)...)
		}
		values := t.Decode(w)
		return [][]byte{w}, func(i uint32) float64 { return values[i] }
	}
}

// Sizes of the kernels of blocks: those of blocks of 32, with as many whole ones.
func blockEdges(name string) [][]uint32 {
	wider := uint32(BlockTypes[name].Elements / 32)
	edges := [][]uint32{{7, 33, 0, 0, 1 << 31, 1 << 31}, {7, 0, 3, 1, 9, 1}, {1, 32 * wider, 1, 0, 0, 0},
		{33, 96 * wider, 2, 0, 33, 3}, {31, 32 * wider, 5, 1, 40, 7}, {40, 64 * wider, 9, 0, 40, 0}}
	return edges
}

func drawBlocks(name string) func(*rand.Rand) []uint32 {
	elements := uint32(BlockTypes[name].Elements)
	return func(r *rand.Rand) []uint32 {
		rows := upTo(r, 50)
		return []uint32{rows, elements * upTo(r, 3), upTo(r, 12), r.Uint32N(2), rows + slack(r), slack(r) * 3}
	}
}

func embedBlockEdges(name string) [][]uint32 {
	n := uint32(BlockTypes[name].Elements)
	return [][]uint32{{3, 0, n}, {3, 5, 0}, {1, 1, n}, {9, 2, n}, {10, 3, 3 * n}}
}

func drawEmbedBlocks(name string) func(*rand.Rand) []uint32 {
	elements := uint32(BlockTypes[name].Elements)
	return func(r *rand.Rand) []uint32 { return []uint32{1 + upTo(r, 20), upTo(r, 9), elements * r.Uint32N(3)} }
}

// The tables of this package have the kernels of each type.
func init() {
	for _, name := range BlockNames {
		t := BlockTypes[name]
		models["embed_"+name] = model{[]string{"rows", "tokens", "dim"}, embedBlockEdges(name), drawEmbedBlocks(name), fillEmbedOf(storedBlocks(name))}
		models["linear_"+name] = model{linearNames, blockEdges(name), drawBlocks(name), fillLinear(storedBlocks(name))}
		traps["embed_"+name] = embedBlockTraps(uint32(t.Bytes), uint32(t.Elements))
		traps["linear_"+name] = linearTraps(uint32(t.Bytes), uint32(t.Elements))
	}
}

func f16At(b []byte, at int) float64 { return half(binary.LittleEndian.Uint16(b[at:])) }

func decodeQ41(b []byte, out []float64) {
	d, m := f16At(b, 0), f16At(b, 2)
	for j, q := range b[4:] {
		out[j] = float64(q&15)*d + m
		out[j+16] = float64(q>>4)*d + m
	}
}

// fives are the five-bit numbers of q5_0 and q5_1.
func fives(high uint32, q []byte) (out [32]float64) {
	for j, b := range q {
		out[j] = float64(uint32(b&15) | (high>>j)<<4&0x10)
		out[j+16] = float64(uint32(b>>4) | (high>>(j+12))&0x10)
	}
	return out
}

func decodeQ50(b []byte, out []float64) {
	for j, q := range fives(binary.LittleEndian.Uint32(b[2:]), b[6:]) {
		out[j] = (q - 16) * f16At(b, 0)
	}
}

func decodeQ51(b []byte, out []float64) {
	for j, q := range fives(binary.LittleEndian.Uint32(b[4:]), b[8:]) {
		out[j] = q*f16At(b, 0) + f16At(b, 2)
	}
}

func decodeQ2K(b []byte, out []float64) {
	scales, q, d, low := b[:16], b[16:80], f16At(b, 80), f16At(b, 82)
	n := 0
	for ; len(q) > 0; q = q[32:] {
		for shift := 0; shift < 8; shift += 2 {
			for l := range 32 {
				s := scales[n/16]
				out[n] = d*float64(s&15)*float64(q[l]>>shift&3) - low*float64(s>>4)
				n++
			}
		}
	}
}

func decodeQ3K(b []byte, out []float64) {
	high, q, packed, d := b[:32], b[32:96], b[96:108], f16At(b, 108)
	// Twelve bytes as three words: the low halves of two, and two bits of the third.
	const twos, fours = 0x03030303, 0x0f0f0f0f
	a0, a1, top := binary.LittleEndian.Uint32(packed), binary.LittleEndian.Uint32(packed[4:]), binary.LittleEndian.Uint32(packed[8:])
	var scales []byte
	for _, word := range []uint32{a0&fours | top&twos<<4, a1&fours | top>>2&twos<<4, a0>>4&fours | top>>4&twos<<4, a1>>4&fours | top>>6&twos<<4} {
		scales = binary.LittleEndian.AppendUint32(scales, word)
	}

	n, bit := 0, byte(1)
	for ; len(q) > 0; q = q[32:] {
		for shift := 0; shift < 8; shift += 2 {
			for l := range 32 {
				v := float64(q[l] >> shift & 3)
				if high[l]&bit == 0 {
					v -= 4
				}
				out[n] = d * (float64(scales[n/16]) - 32) * v
				n++
			}
			bit <<= 1
		}
	}
}

// sixes are the eight scales and offsets of q4_k and q5_k, of six bits each.
func sixes(p []byte) (scales, lows [8]float64) {
	for j := range 4 {
		scales[j], lows[j] = float64(p[j]&63), float64(p[j+4]&63)
		scales[j+4] = float64(int(p[j+8]&15) + int(p[j]>>6)*16)
		lows[j+4] = float64(int(p[j+8]>>4) + int(p[j+4]>>6)*16)
	}
	return scales, lows
}

func decodeQ4K(b []byte, out []float64) {
	scales, lows := sixes(b[4:16])
	d, low, q := f16At(b, 0), f16At(b, 2), b[16:]
	for k := 0; k < 8; k += 2 {
		for l := range 32 {
			out[k*32+l] = d*scales[k]*float64(q[l]&15) - low*lows[k]
			out[k*32+32+l] = d*scales[k+1]*float64(q[l]>>4) - low*lows[k+1]
		}
		q = q[32:]
	}
}

func decodeQ5K(b []byte, out []float64) {
	scales, lows := sixes(b[4:16])
	d, low, high, q := f16At(b, 0), f16At(b, 2), slices.Clone(b[16:48]), b[48:]
	for k := 0; k < 8; k += 2 {
		for l := range 32 {
			out[k*32+l] = d*scales[k]*float64(q[l]&15+high[l]&1*16) - low*lows[k]
			out[k*32+32+l] = d*scales[k+1]*float64(q[l]>>4+high[l]>>1&1*16) - low*lows[k+1]
			high[l] >>= 2
		}
		q = q[32:]
	}
}

func decodeQ6K(b []byte, out []float64) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], f16At(b, 208)
	for n := 0; n < 256; n += 128 {
		for l := range 32 {
			for part, q := range []byte{low[l] & 15, low[l+32] & 15, low[l] >> 4, low[l+32] >> 4} {
				v := float64(q+high[l]>>(2*part)&3*16) - 32
				out[n+32*part+l] = d * float64(int8(scales[(n+32*part+l)/16])) * v
			}
		}
		low, high = low[64:], high[32:]
	}
}

var levels = [16]float64{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func decodeIQ4NL(b []byte, out []float64) {
	for j, q := range b[2:] {
		out[j], out[j+16] = f16At(b, 0)*levels[q&15], f16At(b, 0)*levels[q>>4]
	}
}

func decodeIQ4XS(b []byte, out []float64) {
	high, low, q := binary.LittleEndian.Uint16(b[2:]), b[4:8], b[8:]
	for k := range 8 {
		s := low[k/2]
		if k%2 == 1 {
			s >>= 4
		}
		d := f16At(b, 0) * float64(int(s&15)+int(high&3)*16-32)
		high >>= 2
		for j := range 16 {
			out[k*32+j], out[k*32+16+j] = d*levels[q[j]&15], d*levels[q[j]>>4]
		}
		q = q[16:]
	}
}

// e2m1 are the magnitudes of four bits (OCP Microscaling Formats, section 5.3.3).
var e2m1 = [8]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}

func decodeMXFP4(b []byte, out []float64) {
	d := math.Ldexp(1, int(b[0])-127)
	value := func(q byte) float64 {
		if q > 8 {
			return -d * e2m1[q-8]
		}
		return d * e2m1[q&7]
	}
	for j, q := range b[1:] {
		out[j], out[j+16] = value(q&15), value(q>>4)
	}
}
