package vec

import "encoding/binary"

// Affine is an access whose addresses are the same from lane to lane: the lane at
// x, y, z of a workgroup uses the bytes from At + x·X + y·Y + z·Z on. W and H are
// the workgroup's width and height; lanes are numbered x first, then y, then z.
//
// It is many times faster than a Gather: where X is the size of an element a row
// is a run of memory, where X is 0 it is one element.
type Affine struct {
	At      int
	X, Y, Z int
	W, H    int
}

// far is more than any step or address that can be in range, and so small that
// sums and products below do not wrap.
const far = 1 << 40

// flat makes an access of n elements of size bytes one of as few dimensions as
// may be, and says whether all its bytes are in mem.
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
	if max(a.At, a.X, a.Y, a.Z) > far || min(a.At, a.X, a.Y, a.Z) < -far {
		return a, false
	}
	x, y, z := a.X*(a.W-1), a.Y*(a.H-1), a.Z*(depth-1)
	lo := a.At + min(x, 0) + min(y, 0) + min(z, 0)
	hi := a.At + max(x, 0) + max(y, 0) + max(z, 0)
	if lo < 0 || hi > len(mem)-size {
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

// LoadAffine32 loads words. It is false, and dst unspecified, if one would be
// outside of mem.
func LoadAffine32(dst []uint32, mem []byte, a Affine) bool {
	if len(dst) == 0 {
		return true
	}
	a, ok := a.flat(mem, len(dst), 4)
	if !ok {
		return false
	}
	for plane := 0; len(dst) > 0; plane++ {
		n := a.W * a.H
		loadRows(dst[:n], mem, a.At+plane*a.Z, a.X, a.Y, a.W)
		dst = dst[n:]
	}
	return true
}

// loadRows is one plane: rows of w words, y bytes apart.
func loadRows(dst []uint32, mem []byte, at, x, y, w int) {
	if accelerated {
		switch {
		case x == 4:
			copyRowsAVX2(dst, mem, at, y, w)
			return
		case x == 0:
			splatRowsAVX2(dst, mem, at, y, w)
			return
		case x > -1<<28 && x < 1<<28: // seven steps fit an index
			gatherRowsAVX2(dst, mem, at, x, y, w)
			return
		}
	}
	for ; len(dst) > 0; at += y {
		b := at
		for i := range dst[:w] {
			dst[i] = binary.LittleEndian.Uint32(mem[b:])
			b += x
		}
		dst = dst[w:]
	}
}

// StoreAffine32 stores words, in the order of the lanes. It is false, and nothing
// was stored, if one would be outside of mem.
func StoreAffine32(mem []byte, a Affine, src []uint32) bool {
	if len(src) == 0 {
		return true
	}
	a, ok := a.flat(mem, len(src), 4)
	if !ok {
		return false
	}
	for plane := 0; len(src) > 0; plane++ {
		n := a.W * a.H
		storeRows(mem, a.At+plane*a.Z, a.X, a.Y, a.W, src[:n])
		src = src[n:]
	}
	return true
}

func storeRows(mem []byte, at, x, y, w int, src []uint32) {
	if accelerated && x == 4 {
		uncopyRowsAVX2(mem, at, y, w, src)
		return
	}
	for ; len(src) > 0; at += y {
		b := at
		for _, v := range src[:w] {
			binary.LittleEndian.PutUint32(mem[b:], v)
			b += x
		}
		src = src[w:]
	}
}
