package vec

// Or is a | b.
func Or(dst, a, b []uint32) {
	if accelerated {
		orAVX2(dst, a, b)
		return
	}
	orGo(dst, a, b)
}

// Split divides the lanes of mask by cond, as a branch does: yes is mask & cond, no
// is mask &^ cond. It reports which of them has lanes.
func Split(yes, no, cond, mask []uint32) (anyYes, anyNo bool) {
	if accelerated {
		return splitAVX2(yes, no, cond, mask)
	}
	yes = yes[:min(len(yes), len(no), len(cond), len(mask))]
	no, cond, mask = no[:len(yes)], cond[:len(yes)], mask[:len(yes)]
	var y, n uint32
	for i, m := range mask {
		c := cond[i]
		yes[i], no[i] = m&c, m&^c
		y |= m & c
		n |= m &^ c
	}
	return y != 0, n != 0
}

// Select is a where cond is true, b elsewhere.
func Select(dst, cond, a, b []uint32) {
	if accelerated {
		selectAVX2(dst, cond, a, b)
		return
	}
	dst = dst[:min(len(dst), len(cond), len(a), len(b))]
	cond, a, b = cond[:len(dst)], a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = b[i] ^ (a[i]^b[i])&cond[i]
	}
}

// SelectL is Select for lanes of 64 bits.
func SelectL(dst []uint64, cond []uint32, a, b []uint64) {
	dst = dst[:min(len(dst), len(cond), len(a), len(b))]
	cond, a, b = cond[:len(dst)], a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = b[i] ^ (a[i]^b[i])&uint64(int32(cond[i]))
	}
}

// Blend copies src to dst on the lanes of mask.
func Blend(dst, src, mask []uint32) {
	if accelerated {
		selectAVX2(dst, mask, src, dst)
		return
	}
	dst = dst[:min(len(dst), len(src), len(mask))]
	src, mask = src[:len(dst)], mask[:len(dst)]
	for i := range dst {
		dst[i] ^= (dst[i] ^ src[i]) & mask[i]
	}
}

// BlendS puts s into dst on the lanes of mask.
func BlendS(dst []uint32, s uint32, mask []uint32) {
	if accelerated {
		blendSAVX2(dst, s, mask)
		return
	}
	dst = dst[:min(len(dst), len(mask))]
	mask = mask[:len(dst)]
	for i := range dst {
		dst[i] ^= (dst[i] ^ s) & mask[i]
	}
}

// BlendL is Blend for lanes of 64 bits.
func BlendL(dst, src []uint64, mask []uint32) {
	dst = dst[:min(len(dst), len(src), len(mask))]
	src, mask = src[:len(dst)], mask[:len(dst)]
	for i := range dst {
		dst[i] ^= (dst[i] ^ src[i]) & uint64(int32(mask[i]))
	}
}

// Splat puts s on every lane.
func Splat(dst []uint32, s uint32) {
	if accelerated {
		splatAVX2(dst, s)
		return
	}
	for i := range dst {
		dst[i] = s
	}
}

// SplatL puts s on every lane.
func SplatL(dst []uint64, s uint64) {
	for i := range dst {
		dst[i] = s
	}
}

// AnyZero is the first lane of mask with 0 in a, or -1. A nil mask has all lanes.
func AnyZero(a, mask []uint32) int {
	if accelerated {
		if mask == nil {
			return firstZeroAVX2(a)
		}
		return firstZeroOnAVX2(a, mask)
	}

	if mask == nil {
		for i, v := range a {
			if v == 0 {
				return i
			}
		}
		return -1
	}

	a = a[:min(len(a), len(mask))]
	mask = mask[:len(a)]
	for i, v := range a {
		if v == 0 && mask[i] != 0 {
			return i
		}
	}

	return -1
}

// AnyZeroL is AnyZero for lanes of 64 bits.
func AnyZeroL(a []uint64, mask []uint32) int {
	for i, v := range a {
		if v == 0 && (mask == nil || i < len(mask) && mask[i] != 0) {
			return i
		}
	}
	return -1
}

// First is the first lane of mask, or -1.
func First(mask []uint32) int {
	if accelerated {
		return firstAVX2(mask)
	}
	for i, m := range mask {
		if m != 0 {
			return i
		}
	}
	return -1
}

// All reports whether mask has all lanes.
func All(mask []uint32) bool {
	if accelerated {
		return firstZeroAVX2(mask) < 0
	}
	for _, m := range mask {
		if m == 0 {
			return false
		}
	}
	return true
}

// Same reports whether a has one value on all lanes of mask; a nil mask has all.
// Without a lane it is true.
func Same(a, mask []uint32) bool {
	if mask == nil {
		if accelerated {
			return sameAVX2(a)
		}
		for _, v := range a {
			if v != a[0] {
				return false
			}
		}
		return true
	}

	a = a[:min(len(a), len(mask))]
	first := First(mask[:len(a)])
	if first < 0 {
		return true
	}

	for i, v := range a {
		if v != a[first] && mask[i] != 0 {
			return false
		}
	}

	return true
}
