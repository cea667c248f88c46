package native

import (
	"encoding/binary"
	"math"
)

// The block types of GGUF but for q8_0 and q4_0. All are small integers, times a scale
// for each group of 16 or 32 of them, and some plus an offset for each group. Go code
// unpacks the integers, eight at a time, and assembly makes them f32. The product is
// exact, so a fused addition would change nothing.

// unpacked has some whole blocks, up to 256 elements.
type unpacked struct {
	q       [256]byte // signed
	scales  [16]float32
	offsets [16]float32
	group   int // elements of one scale
	offset  bool
}

const (
	ones8   = 0x0101010101010101
	threes8 = 0x0303030303030303
	lows8   = 0x0f0f0f0f0f0f0f0f
	tops8   = 0x8080808080808080
)

// expandBlocks makes dst, whole blocks, the values of w.
func expandBlocks(t weightType, dst []float32, w []byte, sub subnormals) {
	if expandAtOnce(t, dst, w) {
		return
	}

	b := &blocks[t]
	var u unpacked
	for len(dst) > 0 {
		n := min(uint64(len(dst)), uint64(len(u.q)))
		bytes := n / b.values * b.bytes
		u.unpack(t, w[:bytes])
		if u.offset {
			expandOffsets(dst[:n], u.q[:n], &u.scales, &u.offsets, u.group, sub)
		} else {
			expandScales(dst[:n], u.q[:n], &u.scales, u.group, sub)
		}
		dst, w = dst[n:], w[bytes:]
	}
}

func (u *unpacked) unpack(t weightType, w []byte) {
	u.group, u.offset = 32, false
	switch t {
	case typeQ41, typeQ50, typeQ51, typeIQ4NL, typeMXFP4:
		u.small(t, w)
	case typeQ2K:
		u.q2k((*[84]byte)(w))
	case typeQ3K:
		u.q3k((*[110]byte)(w))
	case typeQ4K:
		u.nibbles(w[16:144])
		u.sixes((*[16]byte)(w))
	case typeQ5K:
		u.nibbles(w[48:176])
		u.fifths((*[32]byte)(w[16:48]))
		u.sixes((*[16]byte)(w))
	case typeQ6K:
		u.q6k((*[210]byte)(w))
	case typeIQ4XS:
		u.iq4xs((*[136]byte)(w))
	}
}

func load8(b []byte) uint64     { return binary.LittleEndian.Uint64(b) }
func store8(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// minus takes n, at most 127, off eight bytes that are at most 127.
func minus(v uint64, n byte) uint64 { return (v | tops8) - uint64(n)*ones8 ^ tops8 }

// small does blocks of 32.
func (u *unpacked) small(t weightType, w []byte) {
	size := int(blocks[t].bytes)
	u.offset = t == typeQ41 || t == typeQ51
	for k := 0; len(w) > 0; k++ {
		b, q := w[:size], u.q[32*k:][:32]
		w = w[size:]
		if t == typeMXFP4 {
			u.scales[k] = halfOfPower(b[0])
			leveled(q, b[1:], &mxLevels)
			continue
		}

		u.scales[k] = f16(binary.LittleEndian.Uint16(b))
		if u.offset {
			u.offsets[k] = f16(binary.LittleEndian.Uint16(b[2:]))
		}

		switch t {
		case typeIQ4NL:
			leveled(q, b[2:], &iqLevels)
		case typeQ41:
			halves16(q, b[4:], 0)
		case typeQ50:
			halves16(q, b[6:], binary.LittleEndian.Uint32(b[2:]))
			for i := 0; i < 32; i += 8 {
				store8(q[i:], minus(load8(q[i:]), 16))
			}
		case typeQ51:
			halves16(q, b[8:], binary.LittleEndian.Uint32(b[4:]))
		}
	}
}

// halves16 are the 32 halves of 16 bytes, and fifth bits.
func halves16(q, b []byte, fifth uint32) {
	for i := 0; i < 16; i += 8 {
		v := load8(b[i:])
		store8(q[i:], v&lows8|bitOf(byte(fifth>>i)))
		store8(q[i+16:], v>>4&lows8|bitOf(byte(fifth>>(i+16))))
	}
}

// bitOf is 16 in byte i where bit i is set.
func bitOf(bits byte) uint64 {
	v := uint64(bits) * ones8 & 0x8040201008040201
	return (v + 0x7f7f7f7f7f7f7f7f | v) & tops8 >> 3
}

// nibbles are the halves of each 32 bytes, the low ones first.
func (u *unpacked) nibbles(b []byte) {
	for at := 0; at < 128; at += 32 {
		for l := at; l < at+32; l += 8 {
			v := load8(b[l:])
			store8(u.q[at+l:], v&lows8)
			store8(u.q[at+l+32:], v>>4&lows8)
		}
	}
}

// fifths adds the fifth bits of q5_k.
func (u *unpacked) fifths(high *[32]byte) {
	for l := 0; l < 32; l += 8 {
		v := load8(high[l:])
		for k := range 8 {
			at := u.q[32*k+l:]
			store8(at, load8(at)|v>>k&ones8<<4)
		}
	}
}

// sixes are the scales and offsets of q4_k and q5_k.
func (u *unpacked) sixes(b *[16]byte) {
	u.offset = true
	d, low := f16(binary.LittleEndian.Uint16(b[:])), -f16(binary.LittleEndian.Uint16(b[2:]))
	p := b[4:]
	for k := range 4 {
		u.scales[k], u.offsets[k] = d*float32(p[k]&63), low*float32(p[k+4]&63)
		u.scales[k+4] = d * float32(p[k+8]&15|p[k]>>6<<4)
		u.offsets[k+4] = low * float32(p[k+8]>>4|p[k+4]>>6<<4)
	}
}

func (u *unpacked) q2k(b *[84]byte) {
	u.group, u.offset = 16, true
	d, low := f16(binary.LittleEndian.Uint16(b[80:])), -f16(binary.LittleEndian.Uint16(b[82:]))
	for k, s := range b[:16] {
		u.scales[k], u.offsets[k] = d*float32(s&15), low*float32(s>>4)
	}
	for half := range 2 {
		for l := 0; l < 32; l += 8 {
			v := load8(b[16+32*half+l:])
			for j := range 4 {
				store8(u.q[128*half+32*j+l:], v>>(2*j)&threes8)
			}
		}
	}
}

func (u *unpacked) q3k(b *[110]byte) {
	u.group = 16
	d, p := f16(binary.LittleEndian.Uint16(b[108:])), b[96:108]
	for k := range 16 {
		s := p[k%8]>>(k/8*4)&15 | p[8+k%4]>>(k/4*2)&3<<4
		u.scales[k] = d * float32(int(s)-32)
	}
	for half := range 2 {
		for l := 0; l < 32; l += 8 {
			v, high := load8(b[32+32*half+l:]), load8(b[l:])>>(4*half)
			for j := range 4 {
				store8(u.q[128*half+32*j+l:], minus(v>>(2*j)&threes8|high>>j&ones8<<2, 4))
			}
		}
	}
}

func (u *unpacked) q6k(b *[210]byte) {
	u.group = 16
	d := f16(binary.LittleEndian.Uint16(b[208:]))
	for k, s := range b[192:208] {
		u.scales[k] = d * float32(int8(s))
	}
	for half := range 2 {
		low, high, q := b[64*half:][:64], b[128+32*half:][:32], u.q[128*half:][:128]
		for l := 0; l < 32; l += 8 {
			v, w, h := load8(low[l:]), load8(low[l+32:]), load8(high[l:])
			store8(q[l:], minus(v&lows8|h&threes8<<4, 32))
			store8(q[l+32:], minus(w&lows8|h>>2&threes8<<4, 32))
			store8(q[l+64:], minus(v>>4&lows8|h>>4&threes8<<4, 32))
			store8(q[l+96:], minus(w>>4&lows8|h>>6&threes8<<4, 32))
		}
	}
}

func (u *unpacked) iq4xs(b *[136]byte) {
	d, high := f16(binary.LittleEndian.Uint16(b[:])), binary.LittleEndian.Uint16(b[2:])
	for k := range 8 {
		s := b[4+k/2]>>(k%2*4)&15 | byte(high>>(2*k)&3<<4)
		u.scales[k] = d * float32(int(s)-32)
		leveled(u.q[32*k:][:32], b[8+16*k:][:16], &iqLevels)
	}
}

// leveled are the levels that the halves of 16 bytes number, the low ones first.
func leveled(q, b []byte, levels *[256]uint16) {
	q, b = q[:32], b[:16]
	for i, v := range b {
		two := levels[v]
		q[i], q[i+16] = byte(two), byte(two>>8)
	}
}

// iqLevels and mxLevels are the levels of the low half of a byte, and of the high one.
var (
	iqLevels = pairs([16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113})
	mxLevels = pairs([16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}) // doubled
)

func pairs(levels [16]int8) (out [256]uint16) {
	for i := range out {
		out[i] = uint16(byte(levels[i&15])) | uint16(byte(levels[i>>4]))<<8
	}
	return out
}

// halfOfPower is 2^(e-128).
func halfOfPower(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

func expandScalesGo(dst []float32, q []byte, scales *[16]float32, group int) {
	for i := range dst {
		dst[i] = scales[i/group] * float32(int8(q[i]))
	}
}

func expandOffsetsGo(dst []float32, q []byte, scales, offsets *[16]float32, group int) {
	for i := range dst {
		dst[i] = scales[i/group]*float32(int8(q[i])) + offsets[i/group]
	}
}
