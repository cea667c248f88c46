package vec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// gather is Gather32, or GatherMask with a mask.
func gather(dst, idx, mask []uint32, mem []byte) int {
	if mask == nil {
		return Gather32(dst, idx, mem)
	}
	return GatherMask(dst, idx, mask, mem)
}

// modelGather is the same, one lane after the other.
func modelGather(dst, idx, mask []uint32, mem []byte) int {
	on := func(i int) bool { return mask == nil || mask[i] != 0 }
	for i := range idx {
		if on(i) && (uint64(idx[i])+1)*4 > uint64(len(mem)) {
			return i
		}
	}
	for i := range idx {
		if on(i) {
			dst[i] = binary.LittleEndian.Uint32(mem[uint64(idx[i])*4:])
		}
	}
	return -1
}

// indices: of each pattern that the assembly recognises, and none; count is the
// number of elements.
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

func TestGather(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		for round := range 40 * maxLen {
			n := round % maxLen
			mem := make([]byte, r.IntN(500))
			for i := range mem {
				mem[i] = byte(r.Uint32())
			}

			idx := indices(r, n, len(mem)/4)
			var mask []uint32
			if r.IntN(2) == 0 {
				mask = masks(r, n)
				for i := range mask {
					if mask[i] == 0 && r.IntN(3) == 0 {
						idx[i] = r.Uint32() // nobody looks at it
					}
				}
			}

			dst, intact := guarded(n)
			copy(dst, words(r, n))
			wantDst := slices.Clone(dst)
			want := modelGather(wantDst, idx, mask, mem)
			require.Equal(t, want, gather(dst, idx, mask, mem), "first bad lane of %d, memory of %d", n, len(mem))
			require.True(t, intact(), "%d lanes", n)
			if want < 0 {
				require.True(t, slices.Equal(wantDst, dst), "%d lanes: %x, not %x", n, dst, wantDst)
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
