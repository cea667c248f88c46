package vec

import "encoding/binary"

// Affine is an access with addresses in equal steps from lane to lane: the lane at
// x, y, z of a workgroup uses the bytes from At + x·X + y·Y + z·Z on. W and H are
// the workgroup's width and height; lanes are numbered x first, then y, then z.
//
// It is many times faster than a Gather: if X is the size of an element, a row is a
// run of memory; if X is 0, it is one element.
type Affine struct {
	At      int
	X, Y, Z int
	W, H    int
}

// far is above any step or address that can be in range, and so small that sums and
// products below do not wrap.
const far = 1 << 40

// plain reports that a is one plane of n words, all of them in memory of size
// bytes. Inner loops have such accesses, and this check is faster than flat's.
func (a *Affine) plain(n, size int) bool {
	at, x, y := int64(a.At), int64(a.X), int64(a.Y)
	if uint(a.W)-1|uint(a.H)-1 >= 1<<20 || a.W*a.H != n || (uint64(x+far)|uint64(y+far)|uint64(at))>>41 != 0 {
		return false
	}
	x, y = x*int64(a.W-1), y*int64(a.H-1)
	return at+min(x, 0)+min(y, 0) >= 0 && at+max(x, 0)+max(y, 0) <= int64(size)-4
}

// flat reduces an access of n elements of size bytes to as few dimensions as
// possible, and reports whether all its bytes are in mem.
func (a Affine) flat(mem []byte, n, size int) (Affine, bool) {
	if a.W <= 0 || a.H <= 0 || a.W > n || a.H > n || n > 1<<20 {
		return a, false
	}

	depth := 1
	if plane := a.W * a.H; plane != n {
		if depth = n / plane; depth*plane != n {
			return a, false
		}
	}

	at, x, y, z := int64(a.At), int64(a.X), int64(a.Y), int64(a.Z)
	if max(at, x, y, z) > far || min(at, x, y, z) < -far {
		return a, false
	}

	x, y, z = x*int64(a.W-1), y*int64(a.H-1), z*int64(depth-1)
	lo := at + min(x, 0) + min(y, 0) + min(z, 0)
	hi := at + max(x, 0) + max(y, 0) + max(z, 0)
	if lo < 0 || hi > int64(len(mem)-size) {
		return a, false
	}
	if a.W == 1 { // y takes the place of x
		a.X, a.W, a.Y, a.H = a.Y, a.H, a.Z, depth
		depth = 1
	}
	if a.H == 1 {
		a.Y, a.H = a.Z, depth
		depth = 1
	}
	if a.Y == a.X*a.W { // rows follow each other
		a.W, a.Y, a.H = a.W*a.H, a.Z, depth
	}

	return a, true
}

// LoadAffine32 loads words. It returns false, with dst unspecified, if one would be
// outside of mem.
func LoadAffine32(dst []uint32, mem []byte, a Affine) bool {
	if accelerated && a.plain(len(dst), len(mem)) {
		switch a.X {
		case 4:
			copyRowsAVX2(dst, mem, a.At, a.Y, a.W)
			return true
		case 0:
			splatRowsAVX2(dst, mem, a.At, a.Y, a.W)
			return true
		}
	}
	return loadAffine(dst, mem, a, 4)
}

// LoadAffine16 loads units of 2 bytes, zero-extended, as LoadAffine32 does words.
func LoadAffine16(dst []uint32, mem []byte, a Affine) bool { return loadAffine(dst, mem, a, 2) }

// LoadAffine8 loads bytes, zero-extended, as LoadAffine32 does words.
func LoadAffine8(dst []uint32, mem []byte, a Affine) bool { return loadAffine(dst, mem, a, 1) }

func loadAffine(dst []uint32, mem []byte, a Affine, size int) bool {
	if len(dst) == 0 {
		return true
	}
	a, ok := a.flat(mem, len(dst), size)
	if !ok {
		return false
	}
	for plane := a.W * a.H; ; dst = dst[plane:] {
		loadPlane(dst[:plane], mem, a, size)
		if len(dst) == plane {
			return true
		}
		a.At += a.Z
	}
}

// loadPlane is all rows of one z.
func loadPlane(dst []uint32, mem []byte, a Affine, size int) {
	if accelerated {
		switch {
		case size == 4 && a.X == 4:
			copyRowsAVX2(dst, mem, a.At, a.Y, a.W)
			return

		case size == 4 && a.X == 0:
			splatRowsAVX2(dst, mem, a.At, a.Y, a.W)
			return

		case a.X > -1<<28 && a.X < 1<<28: // seven steps fit an index
			// A word at each element, or the word that ends with it, is in mem too,
			// unless both ends are that close.
			lo, hi := a.At, a.At
			for _, s := range [2]int{a.X * (a.W - 1), a.Y * (len(dst)/a.W - 1)} {
				lo, hi = lo+min(s, 0), hi+max(s, 0)
			}
			keep := uint32(1)<<(8*size) - 1
			switch rest := 4 - size; {
			case hi+4 <= len(mem):
				gatherRowsAVX2(dst, mem, a.At, a.X, a.Y, a.W, 0, keep)
				return
			case lo >= rest:
				gatherRowsAVX2(dst, mem, a.At-rest, a.X, a.Y, a.W, uint32(8*rest), keep)
				return
			}
		}
	}
	for at := a.At; len(dst) > 0; at += a.Y {
		b := at
		for i := range dst[:a.W] {
			switch size {
			case 4:
				dst[i] = binary.LittleEndian.Uint32(mem[b:])
			case 2:
				dst[i] = uint32(binary.LittleEndian.Uint16(mem[b:]))
			default:
				dst[i] = uint32(mem[b])
			}
			b += a.X
		}
		dst = dst[a.W:]
	}
}

// StoreAffine32 stores words, in the order of the lanes. It returns false, and has
// stored nothing, if one would be outside of mem.
func StoreAffine32(mem []byte, a Affine, src []uint32) bool {
	if accelerated && a.X == 4 && a.plain(len(src), len(mem)) {
		uncopyRowsAVX2(mem, a.At, a.Y, a.W, src)
		return true
	}
	return storeAffine(mem, a, src, 4)
}

// StoreAffineMask stores the words of the lanes of mask. The bounds check includes
// all lanes.
func StoreAffineMask(mem []byte, a Affine, mask, src []uint32) bool {
	if len(src) == 0 {
		return true
	}
	if len(mask) < len(src) {
		return false
	}

	a, ok := a.flat(mem, len(src), 4)
	if !ok {
		return false
	}

	for plane := a.W * a.H; ; src, mask = src[plane:], mask[plane:] {
		storePlaneMask(mem, a, src[:plane], mask[:plane])
		if len(src) == plane {
			return true
		}
		a.At += a.Z
	}
}

func storePlaneMask(mem []byte, a Affine, src, mask []uint32) {
	if accelerated && a.X == 4 {
		uncopyRowsMaskAVX2(mem, a.At, a.Y, a.W, src, mask)
		return
	}
	for at := a.At; len(src) > 0; at += a.Y {
		b := at
		for i, v := range src[:a.W] {
			if mask[i] != 0 {
				binary.LittleEndian.PutUint32(mem[b:], v)
			}
			b += a.X
		}
		src, mask = src[a.W:], mask[a.W:]
	}
}

// MulAddAffine is c + p·q for f32, the product rounded first, with p and q loaded
// as by LoadAffine32: the inner step of a product of matrices. It returns false,
// with dst unspecified, if it has no fast path or an access would be outside: then
// the caller does the three steps. It has a fast path if p is the same along x and
// q a run of words, or the other way round, and rows are whole eights.
func MulAddAffine(dst []uint32, pMem []byte, p Affine, qMem []byte, q Affine, c []uint32) bool {
	if p.X != 0 {
		pMem, p, qMem, q = qMem, q, pMem, p
	}
	if !accelerated || p.X != 0 || q.X != 4 || p.W != q.W || p.W%8 != 0 || len(c) < len(dst) ||
		!p.plain(len(dst), len(pMem)) || !q.plain(len(dst), len(qMem)) {
		return false
	}
	mulAddRowsAVX2(dst, c, pMem, p.At, p.Y, qMem, q.At, q.Y, p.W)
	return true
}

// StoreAffine16 stores the low 2 bytes, as StoreAffine32 does words.
func StoreAffine16(mem []byte, a Affine, src []uint32) bool { return storeAffine(mem, a, src, 2) }

// StoreAffine8 stores the low bytes, as StoreAffine32 does words.
func StoreAffine8(mem []byte, a Affine, src []uint32) bool { return storeAffine(mem, a, src, 1) }

func storeAffine(mem []byte, a Affine, src []uint32, size int) bool {
	if len(src) == 0 {
		return true
	}
	a, ok := a.flat(mem, len(src), size)
	if !ok {
		return false
	}
	for plane := a.W * a.H; ; src = src[plane:] {
		storePlane(mem, a, src[:plane], size)
		if len(src) == plane {
			return true
		}
		a.At += a.Z
	}
}

func storePlane(mem []byte, a Affine, src []uint32, size int) {
	if accelerated && size == 4 && a.X == 4 {
		uncopyRowsAVX2(mem, a.At, a.Y, a.W, src)
		return
	}
	for at := a.At; len(src) > 0; at += a.Y {
		b := at
		for _, v := range src[:a.W] {
			switch size {
			case 4:
				binary.LittleEndian.PutUint32(mem[b:], v)
			case 2:
				binary.LittleEndian.PutUint16(mem[b:], uint16(v))
			default:
				mem[b] = byte(v)
			}
			b += a.X
		}
		src = src[a.W:]
	}
}
