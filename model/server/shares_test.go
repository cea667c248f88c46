package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/lm"
)

// A peer has its share of the waiting places, and a user its share of its peer's.
// One that has none finds one, whatever others have and however many names they
// make up.
func TestBusy(t *testing.T) {
	inBubble(t, testSize, Options{Waiting: 64}, func(r *rig) {
		var streams []lm.Stream
		for range 4 {
			streams = append(streams, r.generateAs("a", "u", greedy("x", 90)))
		}

		time.Sleep(5 * time.Millisecond) // they have their places
		synctest.Wait()
		asks := func(peer, user string) (n int) {
			for {
				s, err := r.s.Generate(by(peer, user), greedy("x", 90))
				if err != nil {
					require.ErrorIs(t, err, gpuerr.Busy)
					require.ErrorContains(t, err, "your share is taken")
					return n
				}
				streams = append(streams, s)
				n++
			}
		}

		require.Equal(t, 36, asks("a", "u"))
		for i := range 99 {
			asks("a", fmt.Sprint(i))
		}

		require.Equal(t, 48, r.s.Status().Waiting)
		require.Equal(t, 9, asks("b", "u"))
		require.Positive(t, asks("c", "u"))
		require.Equal(t, 4, r.s.Status().Running)
		for _, s := range streams {
			require.NoError(t, s.Close())
		}

		require.GreaterOrEqual(t, asks("a", "u"), 36, "all is given back; some of these have begun")
		for _, s := range streams {
			require.NoError(t, s.Close())
		}
	})
}

// A peer with many requests does not keep another waiting for all of them, under
// whatever names; nor does one of its users keep another waiting.
func TestPeersTakeTurns(t *testing.T) {
	z := testSize
	z.sequences = 1
	inBubble(t, z, Options{}, func(r *rig) {
		done := make(chan string, 64)
		_, _ = all(r.generateAs("first", "", greedy("a text that has passes grow", 1)))
		ask := func(peer, user string) {
			s := r.generateAs(peer, user, seeded("text", 5, 1))
			go func() { _, _ = all(s); done <- peer + user }()
			synctest.Wait()
		}

		for i := range 3 {
			ask("many", fmt.Sprint(i))
			ask("many", fmt.Sprint(i))
		}

		ask("few", "a")
		ask("few", "a")
		ask("few", "b")
		var order []string
		for range 9 {
			order = append(order, <-done)
		}

		require.Equal(t, []string{"many0", "fewa", "many1", "fewb", "many2", "fewa", "many0", "many1", "many2"}, order)
	})
}

// Peers get the same time, whether they ask for little at a time or for much, and
// whether they make up a name for each request.
func TestTimeIsShared(t *testing.T) {
	z := testSize
	z.sequences, z.pages = 1, 60
	inBubble(t, z, Options{}, func(r *rig) {
		stop := make(chan struct{})
		var asking sync.WaitGroup
		tokens := map[string]*atomic.Int64{}
		loop := func(peer string, most, at int, name func(i int) string) {
			tokens[peer] = &atomic.Int64{}
			for range at {
				asking.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						q := seeded("text", most, 1)
						q.IgnoreEnd = true
						s := r.generateAs(peer, name(i), q)
						_, _ = all(s)
						tokens[peer].Add(int64(s.Usage().CompletionTokens))
					}
				})
			}
		}

		loop("short", 4, 2, func(int) string { return "" })
		loop("long", 80, 2, func(int) string { return "" })
		loop("names", 20, 8, func(i int) string { return fmt.Sprint(i) })
		time.Sleep(20 * time.Second)
		close(stop)
		asking.Wait()
		total := tokens["short"].Load() + tokens["long"].Load() + tokens["names"].Load()
		for peer, n := range tokens {
			require.InEpsilon(t, total/3, n.Load(), 0.2, peer)
		}
	})
}

// A peer that has all places, with long texts, gives one up after a while.
func TestPeersShare(t *testing.T) {
	z := testSize
	z.pages = 60
	for name, few := range map[string]lm.Asker{"another peer": {Peer: "few", User: "0"}, "a user of the same": {Peer: "many", User: "few"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, z, Options{}, func(r *rig) {
				r.place.engine().cost = 50 * time.Millisecond
				var many []lm.Stream
				q := seeded("many", 80, 1)
				q.IgnoreEnd = true
				for range 6 {
					many = append(many, r.generateAs("many", "0", q))
					time.Sleep(200 * time.Millisecond)
				}

				short := seeded("few", 20, 2)
				short.IgnoreEnd = true
				var fews []lm.Stream
				for range 3 {
					fews = append(fews, r.generateAs(few.Peer, few.User, short))
				}

				at := time.Now()
				r.right(short, fews[0])
				require.Less(t, time.Since(at), turnAfter+21*50*time.Millisecond+200*time.Millisecond)
				require.GreaterOrEqual(t, time.Since(at), turnAfter)
				r.right(short, fews[1])
				r.right(short, fews[2])
				require.Less(t, time.Since(at), 4*time.Second, "many has its turns as well, but no more")
				for _, s := range many {
					r.right(q, s)
				}

				require.Less(t, r.place.engine().opened, 16, "and the places do not change all the time")
			})
		})
	}
}

// If a pass has no room for all, peers get equal parts of it, however many requests
// each has. Texts to embed, which take passes of their own, count towards that.
func TestPassesAreShared(t *testing.T) {
	z := testSize
	z.sequences, z.batch, z.pages = 8, 2, 120
	inBubble(t, z, Options{Ahead: 1000}, func(r *rig) {
		r.place.engine().cost = 10 * time.Millisecond
		q := seeded("text", 90, 1)
		q.IgnoreEnd = true
		var many []lm.Stream
		for i := range 6 {
			many = append(many, r.generateAs("many", fmt.Sprint(i), q))
		}

		one := r.generateAs("one", "", q)
		time.Sleep(800 * time.Millisecond)
		synctest.Wait()
		sum := 0
		for _, s := range many {
			sum += s.Usage().CompletionTokens
		}

		require.InDelta(t, sum, one.Usage().CompletionTokens, 20, "not a seventh")
		for _, s := range append(many, one) {
			require.NoError(t, s.Close())
		}
	})

	inBubble(t, z, Options{Ahead: 1000}, func(r *rig) {
		r.place.engine().cost = 10 * time.Millisecond
		r.place.engine().embedCost = 200 * time.Millisecond
		q := seeded("text", 90, 1)
		q.IgnoreEnd = true
		s := r.generateAs("one", "", q)
		ctx, cancel := context.WithCancel(by("many", ""))
		var embedding sync.WaitGroup
		for range 3 {
			embedding.Go(func() {
				for ctx.Err() == nil {
					_, _, _ = r.s.Embed(ctx, []string{"a text of many tokens"})
				}
			})
		}

		time.Sleep(2 * time.Second)
		require.InDelta(t, 85, s.Usage().CompletionTokens, 25, "half of the time, not a twentieth")
		cancel()
		embedding.Wait()
		require.NoError(t, s.Close())
	})
}

// When pages run out, a peer that has many gives some, not one that came later.
func TestPagesAreShared(t *testing.T) {
	z := testSize
	z.sequences, z.pages = 4, 16
	inBubble(t, z, Options{Ahead: 1000}, func(r *rig) {
		q := seeded("many", 80, 1)
		q.IgnoreEnd = true
		var many []lm.Stream
		for range 3 {
			many = append(many, r.generateAs("many", "", q))
			time.Sleep(5 * time.Millisecond)
		}
		short := seeded("few", 30, 2)
		short.IgnoreEnd = true
		at := time.Now()
		r.right(short, r.generateAs("few", "", short))
		require.Less(t, time.Since(at), 40*time.Millisecond, "it did not begin anew")
		for _, s := range many {
			r.right(q, s)
		}
	})
}
