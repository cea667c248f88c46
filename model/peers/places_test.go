package peers

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

func none(error) {}

func (s *Places) count() (held int, leaving int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held), s.leaving.Held()
}

// A new client takes the place of the client that has been quiet for the longest,
// of the peer with the most. A client that waits in a call, or has an answer, keeps
// its place, the latter for as long as it keeps asking for more.
func TestPlaceOfTheQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewPlaces(64)
		var lost []int
		take := func(peer string, i int) *Place {
			p, err := all.Take(peer, func(err error) {
				require.ErrorIs(t, err, gpuerr.Busy)
				lost = append(lost, i)
			})
			require.NoError(t, err)
			time.Sleep(time.Millisecond) // each has a different quiet time
			return p
		}

		var have []*Place
		for i := range 64 { // one peer has 4, all others 1
			have = append(have, take(fmt.Sprint(max(i, 3)), i))
		}

		require.Empty(t, lost)
		for i, p := range have {
			switch i {
			case 0:
				p.Count(+1, 0) // is in a call
			case 1:
				p.Count(+1, 0) // has just been in one
				p.Count(-1, 0)
			case 2, 3:
			default:
				p.Count(0, +1)
			}
			time.Sleep(time.Millisecond)
		}

		a := take("new", 64)
		require.Equal(t, []int{2}, lost)
		b := take("new", 65)
		require.Equal(t, []int{2, 3}, lost)
		c := take("newer", 66)
		require.Equal(t, []int{2, 3, 1}, lost, "new has as many that are quiet, and later")
		for _, p := range []*Place{a, b, c} {
			p.Count(+1, 0)
		}

		_, err := all.Take("newest", none)
		require.ErrorIs(t, err, gpuerr.Busy, "all are in use")

		time.Sleep(Unread)
		have[4].Count(0, 0) // it still asks
		take("newest", 67)
		require.Equal(t, []int{2, 3, 1, 5}, lost)
		for _, p := range have {
			p.Leave()
			p.Leave()
		}

		held, leaving := all.count()
		require.Equal(t, 4, held, "those that came since")
		require.EqualValues(t, held, all.shares.Held())
		require.Zero(t, leaving)
	})
}

// A peer has its share of the places, even if it uses all of them. It takes no
// other's place, however many it asks for, and only a bounded number of its
// connections is leaving.
func TestPlacesOfAPeer(t *testing.T) {
	all := NewPlaces(64)
	var have []*Place
	for range 48 {
		p, err := all.Take("a", none)
		require.NoError(t, err)
		p.Count(+1, 0)
		have = append(have, p)
	}

	_, err := all.Take("a", none)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorContains(t, err, "48 of them yours")
	other, err := all.Take("b", none)
	require.NoError(t, err)
	_, err = all.Take("a", none)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.False(t, other.lost, "it is another's, although it is quiet")
	have[0].Leave()
	have[1].Leave()
	last, err := all.Take("a", none)
	require.NoError(t, err)
	var done []func()
	for range maxLeaving * 3 / 4 {
		d, ok := all.Refusing("a")
		require.True(t, ok)
		done = append(done, d)
	}

	_, ok := all.Refusing("a")
	require.False(t, ok)
	refused, ok := all.Refusing("b")
	require.True(t, ok)
	refused()
	_, err = all.Take("a", none)
	require.ErrorIs(t, err, gpuerr.Busy, "nobody may leave")
	done[0]()
	done[0]()
	_, err = all.Take("a", none)
	require.NoError(t, err)
	require.True(t, last.lost)
}
