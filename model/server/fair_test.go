package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/model/lm"
)

// The tree's books match plain lists through any sequence of arrivals, waits,
// places, uses, returns and departures.
func TestFair(t *testing.T) {
	type state struct {
		s               *share[int]
		who             lm.Asker
		waits, has, was bool
		pages           int
	}
	rapid.Check(t, func(t *rapid.T) {
		var f fair[int]
		var all []*state
		pick := func(t *rapid.T, suits func(x *state) bool) *state {
			some := slices.DeleteFunc(slices.Clone(all), func(x *state) bool { return !suits(x) })
			if len(some) == 0 {
				t.Skip()
			}
			return rapid.SampledFrom(some).Draw(t, "item")
		}

		places := func(who func(x *state) bool) (n int) {
			for _, x := range all {
				if x.has && who(x) {
					n++
				}
			}
			return n
		}

		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				who := lm.Asker{Peer: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "peer"), User: rapid.SampledFrom([]string{"u", "v"}).Draw(t, "user")}
				all = append(all, &state{s: f.put(who, len(all)), who: who, waits: true})
			},
			"take": func(t *rapid.T) {
				s := f.next()
				if s == nil {
					t.Skip()
				}

				i := slices.IndexFunc(all, func(x *state) bool { return x.s == s })
				x := all[i]
				require.True(t, x.waits)
				peer := places(func(y *state) bool { return y.who.Peer == x.who.Peer })
				user := places(func(y *state) bool { return y.who == x.who })
				for j, y := range all {
					if !y.waits {
						continue
					}
					require.GreaterOrEqual(t, places(func(z *state) bool { return z.who.Peer == y.who.Peer }), peer)
					if y.who.Peer == x.who.Peer {
						require.GreaterOrEqual(t, places(func(z *state) bool { return z.who == y.who }), user)
					}
					require.False(t, y.who == x.who && j < i, "the oldest of a user")
				}

				s.take()
				x.waits, x.has = false, true
			},
			"uses": func(t *rapid.T) {
				x := pick(t, func(x *state) bool { return x.has })
				x.pages += 3
				x.s.uses(use{pages: 3})
				x.s.charge(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			},
			"give": func(t *rapid.T) {
				x := pick(t, func(x *state) bool { return x.has })
				x.s.give()
				x.has, x.pages, x.was = false, 0, true
			},
			"wait again": func(t *rapid.T) {
				x := pick(t, func(x *state) bool { return x.was && !x.waits && !x.has })
				x.s.wait()
				x.waits = true
			},
			"leave": func(t *rapid.T) {
				x := pick(t, func(x *state) bool { return x.waits })
				x.s.leave()
				x.waits, x.was = false, true
			},
			"gone": func(t *rapid.T) {
				x := pick(t, func(x *state) bool { return !x.waits && !x.has })
				x.s.gone()
				all = slices.DeleteFunc(all, func(y *state) bool { return x == y })
			},
			"": func(t *rapid.T) {
				var want use
				waiting := 0
				for _, x := range all {
					want.pages += x.pages
					if x.has {
						want.places++
					}
					if x.waits {
						want.waiting++
						waiting++
					}
					require.Equal(t, x.pages, x.s.use.pages)
					require.LessOrEqual(t, x.s.had, x.s.above.now+memory)
				}

				require.Equal(t, want, f.all.use)
				require.Len(t, f.waiting(), waiting)
				peers := map[string]bool{}
				for _, x := range all {
					peers[x.who.Peer] = true
				}

				require.Equal(t, len(peers), f.all.active)
			},
		})
	})
}

// The tree remembers departed shares with the largest debts, up to a bound.
func TestFairForgets(t *testing.T) {
	var f fair[int]
	other := f.put(lm.Asker{Peer: "other"}, 0)
	other.take()
	for i := range 1000 {
		s := f.put(lm.Asker{Peer: "many", User: fmt.Sprint(i)}, i)
		s.take()
		s.charge(time.Duration(i%100) * time.Microsecond)
		s.give()
		s.gone()
		p := f.put(lm.Asker{Peer: fmt.Sprint(i)}, i)
		p.take()
		p.charge(time.Duration(i) * time.Microsecond)
		p.give()
		p.gone()
		require.LessOrEqual(t, len(f.all.of), 1+idle)
		if many := f.all.of["many"]; many != nil {
			require.LessOrEqual(t, len(many.of), idle)
		}
	}

	require.NotNil(t, f.all.of["999"])
	require.Nil(t, f.all.of["1"])

	// A peer that comes back owes what it had used.
	s := f.put(lm.Asker{Peer: "999"}, 0)
	n := f.put(lm.Asker{Peer: "new"}, 0)
	require.Same(t, n, f.next())
	n.charge(10 * time.Second)
	require.Same(t, s, f.next())
}
