package server

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/lm"
)

// Passes grow while they are short, so that no pass of a slow model takes so long
// that the driver declares it hung. The size of a pass changes nothing in a text.
func TestPace(t *testing.T) {
	z := testSize
	z.batch, z.pages = 64, 32
	for _, c := range []struct {
		row  time.Duration
		most int
	}{{time.Millisecond, 64}, {40 * time.Millisecond, 16}, {300 * time.Millisecond, 2}, {3 * time.Second, 1}} {
		inBubble(t, z, Options{}, func(r *rig) {
			e := r.place.engine()
			e.rowCost = c.row
			first, long := seeded("a", 2, 1), seeded(strings.Repeat("x ", 40), 3, 2)
			s1, s2 := r.generate(first), r.generate(long)
			r.right(first, s1)
			r.right(long, s2)
			synctest.Wait()
			require.LessOrEqual(t, e.sizes[0], 1)
			most := slices.Max(e.sizes)
			require.LessOrEqual(t, most, c.most)
			require.LessOrEqual(t, c.row*time.Duration(most), max(c.row, 2*passTime+c.row*2), "%v", e.sizes)
			if c.row < 300*time.Millisecond {
				require.Greater(t, most, 8, "%v", e.sizes)
			}
		})
	}

	var p pace
	p.took(8, passTime)
	require.Equal(t, 16, p.most(64))
	require.Equal(t, 4, p.most(4))
	p.took(1, time.Millisecond)
	require.Equal(t, 16, p.most(64), "a small pass says nothing of large ones")
	p.took(16, passTime+1)
	require.Equal(t, 8, p.most(64))
	p.took(1, time.Minute)
	require.Equal(t, 1, p.most(64))
}

// A model that computes NaN or infinity is not the requester's fault.
func TestDamagedModel(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		e := r.place.engine()
		e.damaged = true
		_, err := all(r.generate(seeded("a", 5, 1)))
		require.ErrorIs(t, err, gpuerr.Internal)
		require.ErrorContains(t, err, "are no numbers")
		_, _, err = r.s.Embed(context.Background(), []string{"a"})
		require.ErrorIs(t, err, gpuerr.Internal)
		require.ErrorContains(t, err, "are no numbers")
		e.damaged = false
		q := seeded("a", 5, 1)
		r.right(q, r.generate(q))
		require.Equal(t, lm.Ready, r.s.Status().State)
	})
}
