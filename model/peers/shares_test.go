package peers

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// most is the number of places that a holder gets by asking again and again.
func most(s *Shares, path ...string) (n int64) {
	for s.Take(1, path...) {
		n++
	}
	return n
}

// A peer leaves a quarter to others, and a user a quarter of its peer's part. Two
// greedy holders leave less, and a new one always finds some.
func TestShares(t *testing.T) {
	s := NewShares(64)
	require.EqualValues(t, 48, most(s, "a"))
	require.EqualValues(t, 12, most(s, "b"))
	require.EqualValues(t, 3, most(s, "c"))
	s.Give(24, "a")
	require.EqualValues(t, 18, most(s, "c"), "what is given back goes to all")
	require.Positive(t, most(s, "d"))

	s = NewShares(256)
	require.EqualValues(t, 144, most(s, "a", "u"))
	require.EqualValues(t, 36, most(s, "a", "v"))
	for i := range 300 { // names are free
		most(s, "a", fmt.Sprint(i))
	}

	require.EqualValues(t, 192, s.Held(), "and are all of one peer's share")
	require.EqualValues(t, 36, most(s, "b", "u"))

	s = NewShares(1)
	require.EqualValues(t, 1, most(s, "a"))
	require.Zero(t, most(s, "b"))
	s = NewShares(100)
	require.True(t, s.Take(100, "a", "u"), "who has nothing may have what is free")
	require.False(t, s.Take(1, "b"))
	require.False(t, s.Take(101, "b"))
}

// A holder without a place gets one while one is free. A holder with some leaves a
// third of that. Nothing is remembered of a holder that holds nothing. This is true
// in whatever order they take and give.
func TestSharesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.Int64Range(1, 100).Draw(t, "all")
		s := NewShares(all)
		held := map[[2]string]int64{}
		peerOf := func(peer string) (n int64) {
			for path, k := range held {
				if path[0] == peer {
					n += k
				}
			}
			return n
		}

		var sum int64
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				path := [2]string{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "peer"), rapid.SampledFrom([]string{"u", "v"}).Draw(t, "user")}
				n := rapid.Int64Range(1, 9).Draw(t, "n")
				own, free := peerOf(path[0]), all-sum
				took := s.Take(n, path[:]...)
				switch {
				case n > free:
					require.False(t, took)
				case own == 0:
					require.True(t, took)
				case took:
					require.LessOrEqual(t, own+n, 3*(free-n))
				}

				if took {
					held[path] += n
					sum += n
				}
			},
			"give": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip()
				}
				for path, k := range held {
					n := rapid.Int64Range(1, k).Draw(t, "n")
					s.Give(n, path[:]...)
					sum -= n
					if held[path] -= n; held[path] == 0 {
						delete(held, path)
					}
					break
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, sum, s.Held())
				s.mu.Lock()
				defer s.mu.Unlock()
				users := 0
				for _, h := range s.held.of {
					require.Positive(t, h.n)
					users += len(h.of)
				}
				require.Len(t, held, users)
			},
		})
	})
}
