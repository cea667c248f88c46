package ring

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// known is what a client knows of its own.
//
// +checklocksignore: nobody else has it
func known(l *Local) string {
	c := l.Client
	known := fmt.Sprintln(c.pushed, c.seenHead, c.submitted.Load(), c.keeper.last, c.keeper.fresh, c.keeper.random, c.arena.head, c.arena.tail, c.arena.off)
	for i := range c.keeper.slots {
		s := &c.keeper.slots[i]
		known += fmt.Sprintln(s.place, s.named, s.after)
	}
	return known
}

// TestAgainAgainstPush does the same to two rings, of which one has runs of what is expected
// pushed at once, and the other has each of them pushed by itself: no word of the memory, no
// answer and no completion differs.
//
// +checklocksignore: nobody else has them
func TestAgainAgainstPush(t *testing.T) {
	leakcheck.Check(t)
	r := rand.New(rand.NewPCG(21, 22))
	runs, cut, rolled, wrapped, found := 0, 0, 0, 0, 0
	for round := range 80 {
		entries := uint32(2) << (round % 6)
		numbered := round%3 > 0
		l, plain := newLocal(t, entries), newLocal(t, entries)
		sub, plainSub := l.Client.Submitter(), plain.Client.Submitter()
		said := map[Kept]Entry{}
		push := func(sub Submitter, e Entry, inline []byte) (Kept, error) { return sub.Push(&e, 0, inline) }
		user := uint64(round)
		for range 200 {
			mark := l.Client.Mark()
			for range r.IntN(4) {
				next := sub.Expected()
				require.Equal(t, next, plainSub.Expected())
				if _, ok := said[next]; ok && r.IntN(4) > 0 {
					most := 1 + r.IntN(int(entries)+2)
					n, err := sub.Again(user, most)
					for i := range most {
						e, after := said[plainSub.Expected()], plainSub.After(plainSub.Expected())
						e.UserData = user + uint64(i)
						_, plainErr := push(plainSub, e, nil)
						require.Equal(t, i < n, plainErr == nil)
						if i == n {
							require.Equal(t, plainErr, err)
							break
						}
						require.Equal(t, after, plainSub.Expected())
					}
					if mark := l.Client.Mark(); n > 0 && mark/uint64(entries) != (mark-uint64(n))/uint64(entries) {
						wrapped++
					}
					if user += uint64(n); n < most {
						cut++
					}
					runs++
				} else {
					e, inline := FillEntry(user, 1, uint64(4*r.IntN(6)), 4, 0, 0), []byte(nil)
					if r.IntN(8) == 0 { // what goes by the arena
						e, inline = LaunchEntry(user, 1, Dim3{}, Dim3{}, 0, 0), make([]byte, 449+r.IntN(500))
					}
					kept, err := push(sub, e, inline)
					plainKept, plainErr := push(plainSub, e, inline)
					require.Equal(t, plainKept, kept)
					require.Equal(t, plainErr, err)
					if kept != 0 {
						said[kept] = e
					}
					if err == nil {
						user++
					}
				}
				if !numbered && r.IntN(10) == 0 {
					user = r.Uint64()
				}
			}
			if r.IntN(6) == 0 {
				back := r.Uint64N(l.Client.Mark() - mark + 1)
				l.Client.Rollback(mark + back)
				plain.Client.Rollback(mark + back)
				if now := l.Client.Mark(); numbered {
					user = uint64(round) + now
				}
				rolled++
			}
			require.Equal(t, known(plain), known(l))
			require.True(t, bytes.Equal(plain.memory, l.memory))
			if r.IntN(3) == 0 {
				continue
			}
			err := sub.Flush()
			require.Equal(t, plainSub.Flush(), err)
			if err != nil { // it was found out
				require.ErrorIs(t, err, gpuerr.Protocol)
				found++
				break
			}
			if r.IntN(100) == 0 { // a driver that took what nobody has pushed
				for _, l := range []*Local{l, plain} {
					l.Corrupt(offSQHead/8, func(old uint64) uint64 { return old + 1000 })
				}
			}
			serveBoth(t, r, l, plain)
		}
	}
	if runs < 5000 || cut < 1000 || rolled < 500 || wrapped < 1000 || found < 10 {
		t.Errorf("%d runs, %d cut short, %d rolled back, %d over the end, %d liars found: that tests little", runs, cut, rolled, wrapped, found)
	}
}

// serveBoth has some of what is in two rings taken and completed, and the completions taken.
func serveBoth(t *testing.T, r *rand.Rand, l, plain *Local) {
	t.Helper()
	for most, polled := r.IntN(40), 1+r.IntN(40); most > 0; most = 0 {
		var got [2][]Completion
		for i, l := range []*Local{l, plain} {
			b := NewBatch(0)
			n, err := l.Server.TakeMany(b, most)
			require.NoError(t, err)
			l.Server.Publish(slices.Repeat([]Completion{{Outcome: outcome.Success, DeviceNanos: 7}}, n))
			out := make([]Completion, polled)
			n, err = l.Client.Poll(out)
			require.NoError(t, err)
			got[i] = out[:n]
		}
		require.Equal(t, got[1], got[0])
	}
}

func newLocal(t *testing.T, entries uint32) *Local {
	t.Helper()
	l, err := NewLocal(Config{Entries: entries, ArgBytes: 4096}, LocalOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		l.Client.Close()
		l.Server.Close(gpuerr.Closed)
	})
	return l
}

// TestArenaEnds: what is handed out is what is handed out where the end of every entry is
// written down.
func TestArenaEnds(t *testing.T) {
	const entries, bytes = 8, 1024
	r := rand.New(rand.NewPCG(23, 24))
	full := 0
	for range 300 {
		a := newArena(layout{Config: Config{Entries: entries, ArgBytes: bytes}})
		ends := map[uint64]uint64{} // by position
		taken, pushed := uint64(0), uint64(0)
		for range 200 {
			switch r.IntN(6) {
			case 0:
				if n := r.Uint64N(pushed - taken + 1); n > 0 {
					taken += n
					a.release(taken - 1)
					require.Equal(t, ends[taken-1], a.head)
					if taken == pushed {
						a.reset(taken)
						require.Zero(t, a.tail+a.off+a.head)
					}
				}
			case 1:
				if mark := taken + r.Uint64N(pushed-taken+1); mark < pushed {
					if pushed = mark; mark == taken {
						a.reset(mark)
					} else {
						a.rollback(mark - 1)
						require.Equal(t, ends[mark-1], a.tail)
					}
				}
			default:
				if pushed-taken == entries {
					continue
				}
				if n := r.Uint64N(600); r.IntN(3) == 0 {
					tail := a.tail
					off, ok := a.alloc(pushed, n)
					if !ok {
						full++
						require.Equal(t, tail, a.tail)
						continue
					}
					require.LessOrEqual(t, uint64(off)+n, uint64(bytes))
					require.LessOrEqual(t, a.tail-a.head, uint64(bytes))
				}
				ends[pushed] = a.tail
				pushed++
			}
		}
	}
	require.Greater(t, full, 1000)
}
