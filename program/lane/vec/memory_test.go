package vec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// access is one of the functions on client memory, by a common shape: what it does
// to registers and memory.
type access struct {
	name  string
	size  int
	store bool
	run   func(mem []byte, idx, mask []uint32, reg []uint64) int
}

func narrow(s []uint64) []uint32 {
	w := make([]uint32, len(s))
	for i := range s {
		w[i] = uint32(s[i])
	}
	return w
}

func on32(f func(mem []byte, idx, mask, reg []uint32) int) func(mem []byte, idx, mask []uint32, reg []uint64) int {
	return func(mem []byte, idx, mask []uint32, reg []uint64) int {
		w := narrow(reg)
		bad := f(mem, idx, mask, w)
		for i := range w {
			reg[i] = uint64(w[i])
		}
		return bad
	}
}

var accesses = []access{
	{"Gather32", 4, false, on32(func(mem []byte, idx, mask, reg []uint32) int {
		if mask == nil {
			return Gather32(reg, idx, mem)
		}
		return GatherMask(reg, idx, mask, mem)
	})},
	{"Gather8", 1, false, on32(func(mem []byte, idx, mask, reg []uint32) int { return Gather8(reg, idx, mask, mem) })},
	{"Gather16", 2, false, on32(func(mem []byte, idx, mask, reg []uint32) int { return Gather16(reg, idx, mask, mem) })},
	{"Gather64", 8, false, func(mem []byte, idx, mask []uint32, reg []uint64) int { return Gather64(reg, idx, mask, mem) }},
	{"Scatter32", 4, true, on32(func(mem []byte, idx, mask, reg []uint32) int {
		if mask == nil {
			return Scatter32(mem, idx, reg)
		}
		return ScatterMask(mem, idx, mask, reg)
	})},
	{"Scatter8", 1, true, on32(func(mem []byte, idx, mask, reg []uint32) int { return Scatter8(mem, idx, mask, reg) })},
	{"Scatter16", 2, true, on32(func(mem []byte, idx, mask, reg []uint32) int { return Scatter16(mem, idx, mask, reg) })},
	{"Scatter64", 8, true, func(mem []byte, idx, mask []uint32, reg []uint64) int { return Scatter64(mem, idx, mask, reg) }},
}

// modelAccess is the same, one lane after the other.
func (a access) model(mem []byte, idx, mask []uint32, reg []uint64) int {
	on := func(i int) bool { return mask == nil || mask[i] != 0 }
	for i := range idx {
		if on(i) && (uint64(idx[i])+1)*uint64(a.size) > uint64(len(mem)) {
			return i
		}
	}
	for i := range idx {
		if !on(i) {
			continue
		}
		at := mem[uint64(idx[i])*uint64(a.size):][:a.size]
		var b [8]byte
		if a.store {
			binary.LittleEndian.PutUint64(b[:], reg[i])
			copy(at, b[:])
			continue
		}
		copy(b[:], at)
		reg[i] = binary.LittleEndian.Uint64(b[:])
	}
	return -1
}

// indices: of each pattern that the assembly knows, and none; count is how many
// elements there are.
func indices(r *rand.Rand, n, count int) []uint32 {
	idx := make([]uint32, n)
	if count == 0 {
		return idx
	}
	pattern, start, stride := r.IntN(6), r.IntN(count), r.IntN(5)
	for i := range idx {
		at := 0
		switch pattern {
		case 0:
			at = start
		case 1:
			at = start + i
		case 2:
			at = start + i*stride
		case 3:
			at = start + i/8
		case 4:
			at = i%8 + start
		case 5:
			at = r.IntN(count)
		}
		idx[i] = uint32(at % count)
	}
	if n > 0 && r.IntN(3) == 0 { // out of range, also where it looks negative
		idx[r.IntN(n)] = []uint32{uint32(count), math.MaxUint32, 1 << 31, 1 << 30}[r.IntN(4)]
	}
	return idx
}

func TestAccess(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		for _, a := range accesses {
			for round := range 12 * maxLen {
				n := round % maxLen
				// The memory stands in a longer slice, to see what is written outside.
				all := make([]byte, 700)
				for i := range all {
					all[i] = byte(r.Uint32())
				}
				from, size := r.IntN(64), r.IntN(500)
				mem := all[from : from+size : from+size]
				idx := indices(r, n, size/a.size)
				var mask []uint32
				if r.IntN(2) == 0 {
					mask = masks(r, n)
					for i := range mask {
						if mask[i] == 0 && r.IntN(3) == 0 {
							idx[i] = r.Uint32() // nobody looks at it
						}
					}
				}
				reg := make([]uint64, n)
				for i := range reg {
					reg[i] = uint64(r.Uint32())
				}
				wantAll, wantReg := slices.Clone(all), slices.Clone(reg)
				want := a.model(wantAll[from:from+size:from+size], idx, mask, wantReg)

				got := a.run(mem, idx, mask, reg)
				require.Equal(t, want, got, "%s: first bad lane of %d, memory of %d", a.name, n, size)
				require.True(t, bytes.Equal(wantAll, all), "%s: memory, %d lanes", a.name, n)
				if want < 0 {
					require.True(t, slices.Equal(wantReg, reg), "%s: registers, %d lanes: %x, not %x", a.name, n, reg, wantReg)
				}
			}
		}
	})
}

// The sources may be the destination: an index register that is not used again.
func TestGatherOntoIndex(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		mem := make([]byte, 400)
		for i := range mem {
			mem[i] = byte(i)
		}
		for n := range maxLen {
			idx := make([]uint32, n)
			for i := range idx {
				idx[i] = uint32(r.IntN(100))
			}
			want := make([]uint32, n)
			require.Equal(t, -1, Gather32(want, idx, mem))
			all := make([]uint32, n)
			Splat(all, math.MaxUint32)
			masked := slices.Clone(idx)
			require.Equal(t, -1, GatherMask(masked, masked, all, mem))
			require.Equal(t, want, masked)
			require.Equal(t, -1, Gather32(idx, idx, mem))
			require.Equal(t, want, idx)
		}
	})
}

func TestSeq(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		for n := range maxLen {
			mem := make([]byte, 4*(n+r.IntN(20))+r.IntN(4))
			for i := range mem {
				mem[i] = byte(r.Uint32())
			}
			for _, from := range []uint32{0, 1, 5, 20, 1 << 30, math.MaxUint32} {
				at := int64(from)
				count := len(mem) / 4
				bad := -1
				if at+int64(n) > int64(count) && n > 0 {
					bad = int(max(0, int64(count)-at))
				}
				dst, intact := guarded(n)
				require.Equal(t, bad, LoadSeq32(dst, mem, from), "%d lanes from %d of %d", n, at, count)
				require.True(t, intact())
				was := slices.Clone(mem)
				src := words(r, n)
				require.Equal(t, bad, StoreSeq32(mem, from, src))
				if bad >= 0 {
					require.Equal(t, was, mem)
					continue
				}
				for i := range n {
					equal(t, binary.LittleEndian.Uint32(was[4*(int(at)+i):]), dst[i], "lane %d", i)
					binary.LittleEndian.PutUint32(was[4*(int(at)+i):], src[i])
				}
				require.Equal(t, was, mem)
			}
		}
	})
}
