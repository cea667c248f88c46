package vec

import "math/bits"

// The one-lane functions for integers from which the loops in z*.go are made. A
// divisor of 0 gives 0; the least integer by -1 wraps, in Go as in SPIR-V.

// mask is a bool as a lane has it.
func mask(b bool) uint32 {
	var v uint32
	if b {
		v = 1
	}
	return -v
}

func udiv32(x, y uint32) uint32 {
	if y == 0 {
		return 0
	}
	return x / y
}

func umod32(x, y uint32) uint32 {
	if y == 0 {
		return 0
	}
	return x % y
}

func sdiv32(x, y uint32) uint32 {
	if y == 0 {
		return 0
	}
	return uint32(int32(x) / int32(y))
}

// srem32 has the sign of x.
func srem32(x, y uint32) uint32 {
	if y == 0 {
		return 0
	}
	return uint32(int32(x) % int32(y))
}

// smod32 has the sign of y.
func smod32(x, y uint32) uint32 {
	r := srem32(x, y)
	if r != 0 && int32(r^y) < 0 {
		r += y
	}
	return r
}

func udiv64(x, y uint64) uint64 {
	if y == 0 {
		return 0
	}
	return x / y
}

func umod64(x, y uint64) uint64 {
	if y == 0 {
		return 0
	}
	return x % y
}

func sdiv64(x, y uint64) uint64 {
	if y == 0 {
		return 0
	}
	return uint64(int64(x) / int64(y))
}

func srem64(x, y uint64) uint64 {
	if y == 0 {
		return 0
	}
	return uint64(int64(x) % int64(y))
}

func smod64(x, y uint64) uint64 {
	r := srem64(x, y)
	if r != 0 && int64(r^y) < 0 {
		r += y
	}
	return r
}

func carry32(x, y uint32) uint32 {
	_, c := bits.Add32(x, y, 0)
	return c
}

func borrow32(x, y uint32) uint32 {
	_, b := bits.Sub32(x, y, 0)
	return b
}

func umulHigh32(x, y uint32) uint32 { return uint32(uint64(x) * uint64(y) >> 32) }

func smulHigh32(x, y uint32) uint32 { return uint32(int64(int32(x)) * int64(int32(y)) >> 32) }

func carry64(x, y uint64) uint64 {
	_, c := bits.Add64(x, y, 0)
	return c
}

func borrow64(x, y uint64) uint64 {
	_, b := bits.Sub64(x, y, 0)
	return b
}

func umulHigh64(x, y uint64) uint64 {
	hi, _ := bits.Mul64(x, y)
	return hi
}

// smulHigh64 takes from the unsigned product what the signs of x and y added.
func smulHigh64(x, y uint64) uint64 {
	hi, _ := bits.Mul64(x, y)
	return hi - uint64(int64(x)>>63)&y - uint64(int64(y)>>63)&x
}

// findILsb is the lowest set bit, -1 if there is none.
func findILsb(x uint32) uint32 {
	if x == 0 {
		return ^uint32(0)
	}
	return uint32(bits.TrailingZeros32(x))
}

// findUMsb is the highest set bit, -1 if there is none.
func findUMsb(x uint32) uint32 { return uint32(bits.Len32(x) - 1) }

// Shifts by 32 and more give 0 in Go, so fields that reach past the top bit are
// cut, and a count of 0 gives 0.

func bitFieldU(base, offset, count uint32) uint32 {
	return base >> offset & (1<<count - 1)
}

func bitFieldS(base, offset, count uint32) uint32 {
	if count == 0 {
		return 0
	}
	up := 32 - min(count, 32)
	return uint32(int32(base>>offset<<up) >> up)
}

// BitFieldInsert is base with count bits from offset on replaced by those of insert.
func BitFieldInsert(dst, base, insert, offset, count []uint32) {
	dst = dst[:min(len(dst), len(base), len(insert), len(offset), len(count))]
	for i := range dst {
		field := uint32(1<<count[i]-1) << offset[i]
		dst[i] = base[i]&^field | insert[i]<<offset[i]&field
	}
}
