package vec

import "encoding/binary"

// Loads of client memory by an index for each lane, which counts words from the
// start of mem; a rest shorter than a word is out of range. Both return -1, or the
// first lane with an index out of range: then dst is unspecified. Lanes off the
// mask are ignored, and keep their dst.

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
