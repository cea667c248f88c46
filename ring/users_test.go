package ring

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever user data entries have, and whenever they are read, each has its own; who numbers
// them needs no memory for it.
func TestUsers(t *testing.T) {
	for name, c := range map[string]struct {
		user   func(r *rand.Rand, pos uint64) uint64
		places int
	}{
		"numbered":       {func(_ *rand.Rand, pos uint64) uint64 { return 7 + pos }, 0},
		"numbered round": {func(_ *rand.Rand, pos uint64) uint64 { return pos - 3 }, 0},
		"the same":       {func(*rand.Rand, uint64) uint64 { return 5 }, 16},
		"none":           {func(*rand.Rand, uint64) uint64 { return 0 }, 16},
		"then another":   {func(_ *rand.Rand, pos uint64) uint64 { return 1 + pos + pos/100*pos }, 16},
		"seldom another": {func(r *rand.Rand, pos uint64) uint64 { return pos + uint64(r.IntN(40)/39) }, 16},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			u := users{places: 16}
			said := make(map[uint64]uint64)
			for pushed, read := uint64(0), uint64(0); pushed < 1000; {
				for range r.IntN(6) {
					if pushed-read == 12 {
						break
					}
					said[pushed] = c.user(r, pushed)
					u.keep(pushed, said[pushed])
					pushed++
				}
				submitted := read + uint64(r.IntN(int(pushed-read)+1))
				reader := u.reader(submitted)
				if r.IntN(2) == 0 { // more is pushed before it is read
					for pushed-read < 12 {
						said[pushed] = c.user(r, pushed)
						u.keep(pushed, said[pushed])
						pushed++
					}
				}
				for ; read < submitted; read++ {
					require.Equal(t, said[read], reader.of(read), read)
				}
			}
			if kept := u.kept.Load(); c.places == 0 {
				require.Nil(t, kept)
			} else {
				require.Len(t, *kept, c.places)
			}
		})
	}
}

// One that was rolled back has said nothing.
func TestUsersRolledBack(t *testing.T) {
	u := users{places: 16}
	u.keep(0, 100)
	u.keep(1, 101)
	u.keep(0, 7)
	u.keep(1, 8)
	require.Nil(t, u.kept.Load())
	r := u.reader(2)
	require.Equal(t, uint64(7), r.of(0))
	require.Equal(t, uint64(8), r.of(1))
}
