package manager

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
)

// Against the obvious model: a list of live ranges, compared pairwise.
func TestIOVASpaceModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newIOVASpace()
		if rapid.Bool().Draw(t, "near the end") {
			s.next = endIOVA - 8*ddf.PageBytes
		}
		live := map[ddf.IOVA]uint64{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(t, "free") {
				for start := range live {
					s.give(start)
					require.False(t, s.mapped(start, 1))
					delete(live, start)
					break
				}
				continue
			}
			bytes := rapid.Uint64Range(1, 5).Draw(t, "pages") * ddf.PageBytes
			start, ok := s.take(bytes)
			require.True(t, ok)
			end := start + ddf.IOVA(bytes)
			require.GreaterOrEqual(t, start, firstIOVA)
			require.LessOrEqual(t, end+guardBytes, endIOVA)
			for other, n := range live {
				require.False(t, start <= other+ddf.IOVA(n) && other <= end, "ranges overlap or touch")
			}
			live[start] = bytes
			require.True(t, s.mapped(start, bytes))
			require.False(t, s.mapped(start, bytes+1))
		}
		require.Len(t, s.live, len(live))
	})
}

func TestIOVASpaceFull(t *testing.T) {
	s := newIOVASpace()
	_, ok := s.take(1 << 48)
	require.False(t, ok)
	all, ok := s.take(uint64(endIOVA-firstIOVA) - guardBytes)
	require.True(t, ok)
	_, ok = s.take(ddf.PageBytes)
	require.False(t, ok)
	s.give(all)
	_, ok = s.take(ddf.PageBytes)
	require.True(t, ok)
}
