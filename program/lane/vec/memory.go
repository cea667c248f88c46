package vec

import (
	"encoding/binary"
	"math"
)

// Loads and stores of client memory. An index counts elements of the width in the
// name, from the start of mem; a rest shorter than an element is out of range. All
// return -1, or the first lane whose index is out of range: then dst is
// unspecified, and no store was made. Lanes off the mask are not looked at, and
// keep their dst. Where several lanes store to one element the highest one stays.

// Gather32 loads words.
func Gather32(dst, idx []uint32, mem []byte) int {
	if accelerated && fits(mem) {
		return gather32AVX2(dst, idx, mem)
	}
	return gather32Go(dst, idx, mem)
}

// fits reports whether the assembly can gather from mem: it takes the greatest
// index, and indices as signed.
func fits(mem []byte) bool { return len(mem) >= 4 && uint64(len(mem)) <= 8<<30 }

func gather32Go(dst, idx []uint32, mem []byte) int {
	dst = dst[:min(len(dst), len(idx))]
	n := uint64(len(mem) / 4)
	for i := range dst {
		at := uint64(idx[i])
		if at >= n {
			return i
		}
		dst[i] = binary.LittleEndian.Uint32(mem[at*4:])
	}
	return -1
}

// GatherMask loads words on the lanes of mask.
func GatherMask(dst, idx, mask []uint32, mem []byte) int {
	if accelerated && fits(mem) {
		return gatherMaskAVX2(dst, idx, mask, mem)
	}
	return gatherMaskGo(dst, idx, mask, mem)
}

func gatherMaskGo(dst, idx, mask []uint32, mem []byte) int {
	dst = dst[:min(len(dst), len(idx), len(mask))]
	n := uint64(len(mem) / 4)
	for i := range dst {
		if mask[i] == 0 {
			continue
		}
		at := uint64(idx[i])
		if at >= n {
			return i
		}
		dst[i] = binary.LittleEndian.Uint32(mem[at*4:])
	}
	return -1
}

// outside is the first lane of mask (nil: all lanes) with an index of n or more,
// or -1.
func outside(idx, mask []uint32, n int) int {
	switch {
	case uint64(n) > math.MaxUint32:
		return -1
	case accelerated && n > 0 && mask == nil:
		return firstAboveAVX2(idx, uint32(n-1))
	case accelerated && n > 0:
		return firstAboveOnAVX2(idx, mask, uint32(n-1))
	}
	for i, at := range idx {
		if uint64(at) >= uint64(n) && (mask == nil || mask[i] != 0) {
			return i
		}
	}
	return -1
}

// lanes cuts idx and mask, which may be nil, to one length with other lanes.
func lanes(n int, idx, mask []uint32) (int, []uint32, []uint32) {
	n = min(n, len(idx))
	if mask != nil {
		n = min(n, len(mask))
		mask = mask[:n]
	}
	return n, idx[:n], mask
}

// Gather8 loads bytes, zero-extended. A nil mask has all lanes.
func Gather8(dst, idx, mask []uint32, mem []byte) int {
	n, idx, mask := lanes(len(dst), idx, mask)
	if mask != nil && All(mask) {
		mask = nil
	}
	if bad := outside(idx, mask, len(mem)); bad >= 0 {
		return bad
	}
	dst = dst[:n]
	for from := wholeWords(dst, idx, mask, mem, 0); from < n; from += wholeWords(dst[from:], idx[from:], mask, mem, 0) {
		to := min(n, from+8)
		for ; from < to; from++ {
			if mask == nil || mask[from] != 0 {
				dst[from] = uint32(mem[idx[from]])
			}
		}
	}
	return -1
}

// Gather16 loads units of 2 bytes, zero-extended. A nil mask has all lanes.
func Gather16(dst, idx, mask []uint32, mem []byte) int {
	n, idx, mask := lanes(len(dst), idx, mask)
	if mask != nil && All(mask) {
		mask = nil
	}
	if bad := outside(idx, mask, len(mem)/2); bad >= 0 {
		return bad
	}
	dst = dst[:n]
	for from := wholeWords(dst, idx, mask, mem, 1); from < n; from += wholeWords(dst[from:], idx[from:], mask, mem, 1) {
		to := min(n, from+8)
		for ; from < to; from++ {
			if mask == nil || mask[from] != 0 {
				dst[from] = uint32(binary.LittleEndian.Uint16(mem[uint64(idx[from])*2:]))
			}
		}
	}
	return -1
}

// wholeWords gathers elements of 1<<shift bytes as the words that begin there, as
// far as these are inside mem and lanes come in eights, and says how far that was.
func wholeWords(dst, idx, mask []uint32, mem []byte, shift uint32) int {
	if !accelerated || mask != nil || len(mem) < 4 || uint64(len(mem)) > 1<<31 {
		return 0
	}
	keep := uint32(1)<<(8<<shift) - 1
	return gatherBytesAVX2(dst, idx, mem, uint32(len(mem)-4)>>shift, shift, keep)
}

// Gather64 loads units of 8 bytes. A nil mask has all lanes.
func Gather64(dst []uint64, idx, mask []uint32, mem []byte) int {
	n, idx, mask := lanes(len(dst), idx, mask)
	if bad := outside(idx, mask, len(mem)/8); bad >= 0 {
		return bad
	}
	for i, at := range idx[:n] {
		if mask == nil || mask[i] != 0 {
			dst[i] = binary.LittleEndian.Uint64(mem[uint64(at)*8:])
		}
	}
	return -1
}

// Scatter32 stores words.
func Scatter32(mem []byte, idx, src []uint32) int {
	n, idx, _ := lanes(len(src), idx, nil)
	if bad := outside(idx, nil, len(mem)/4); bad >= 0 {
		return bad
	}
	if accelerated {
		scatter32AVX2(mem, idx, src[:n])
		return -1
	}
	for i, v := range src[:n] {
		binary.LittleEndian.PutUint32(mem[uint64(idx[i])*4:], v)
	}
	return -1
}

// ScatterMask stores words on the lanes of mask.
func ScatterMask(mem []byte, idx, mask, src []uint32) int {
	n, idx, mask := lanes(len(src), idx, mask)
	if bad := outside(idx, mask, len(mem)/4); bad >= 0 {
		return bad
	}
	if accelerated {
		scatterMaskAVX2(mem, idx, mask, src[:n])
		return -1
	}
	for i, v := range src[:n] {
		if mask[i] != 0 {
			binary.LittleEndian.PutUint32(mem[uint64(idx[i])*4:], v)
		}
	}
	return -1
}

// Scatter8 stores the low bytes. A nil mask has all lanes.
func Scatter8(mem []byte, idx, mask, src []uint32) int {
	n, idx, mask := lanes(len(src), idx, mask)
	if bad := outside(idx, mask, len(mem)); bad >= 0 {
		return bad
	}
	for i, v := range src[:n] {
		if mask == nil || mask[i] != 0 {
			mem[idx[i]] = byte(v)
		}
	}
	return -1
}

// Scatter16 stores the low 2 bytes. A nil mask has all lanes.
func Scatter16(mem []byte, idx, mask, src []uint32) int {
	n, idx, mask := lanes(len(src), idx, mask)
	if bad := outside(idx, mask, len(mem)/2); bad >= 0 {
		return bad
	}
	for i, v := range src[:n] {
		if mask == nil || mask[i] != 0 {
			binary.LittleEndian.PutUint16(mem[uint64(idx[i])*2:], uint16(v))
		}
	}
	return -1
}

// Scatter64 stores 8 bytes. A nil mask has all lanes.
func Scatter64(mem []byte, idx, mask []uint32, src []uint64) int {
	n, idx, mask := lanes(len(src), idx, mask)
	if bad := outside(idx, mask, len(mem)/8); bad >= 0 {
		return bad
	}
	for i, v := range src[:n] {
		if mask == nil || mask[i] != 0 {
			binary.LittleEndian.PutUint64(mem[uint64(idx[i])*8:], v)
		}
	}
	return -1
}

// room is how many elements there are from at on.
func room(mem []byte, size int, at uint32) uint64 {
	n := uint64(len(mem) / size)
	return n - min(n, uint64(at))
}

// LoadSeq32 loads the words from at on: lane i that of index at+i.
func LoadSeq32(dst []uint32, mem []byte, at uint32) int {
	if r := room(mem, 4, at); r < uint64(len(dst)) {
		return int(r)
	}
	if len(dst) == 0 {
		return -1
	}
	mem = mem[uint64(at)*4:]
	if accelerated {
		loadSeq32AVX2(dst, mem)
		return -1
	}
	mem = mem[:len(dst)*4]
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint32(mem[i*4:])
	}
	return -1
}

// StoreSeq32 stores lane i to the word of index at+i.
func StoreSeq32(mem []byte, at uint32, src []uint32) int {
	if r := room(mem, 4, at); r < uint64(len(src)) {
		return int(r)
	}
	if len(src) == 0 {
		return -1
	}
	mem = mem[uint64(at)*4:]
	if accelerated {
		storeSeq32AVX2(mem, src)
		return -1
	}
	mem = mem[:len(src)*4]
	for i, v := range src {
		binary.LittleEndian.PutUint32(mem[i*4:], v)
	}
	return -1
}
