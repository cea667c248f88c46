package handles

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

type thing struct{ h Handle }

func add(t *testing.T, table *Table) *thing {
	t.Helper()
	x := &thing{}
	require.NoError(t, table.Add(x, func(h Handle) { x.h = h }))
	return x
}

// Exactly one of racing callers gets the object.
func TestRace(t *testing.T) {
	table := New()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				x := add(t, table)
				got, err := Lookup[thing](table, x.h)
				require.NoError(t, err)
				require.Same(t, x, got)
				var wins sync.WaitGroup
				won := make(chan struct{}, 2)
				for range 2 {
					wins.Go(func() {
						if _, err := Take[thing](table, x.h); err == nil {
							won <- struct{}{}
						}
					})
				}
				wins.Wait()
				require.Len(t, won, 1)
				_, err = Lookup[thing](table, x.h)
				require.Equal(t, error(ErrStale), err)
			}
		})
	}
	wg.Wait()
	table.mu.Lock()
	defer table.mu.Unlock()
	require.Zero(t, table.live)
}

// A slot with no generation left is never used again.
func TestGenerationsRunOut(t *testing.T) {
	table := New()
	first := add(t, table)
	_, err := Take[thing](table, first.h)
	require.NoError(t, err)
	table.mu.Lock()
	table.generations[0] = math.MaxUint32
	table.mu.Unlock()

	last := add(t, table).h
	require.EqualValues(t, math.MaxUint32, last>>32)
	_, err = Take[thing](table, last)
	require.NoError(t, err)
	require.EqualValues(t, 1, uint32(add(t, table).h), "another slot")
	_, err = Lookup[thing](table, last)
	require.Error(t, err)
}

// A table that was told and restored knows the same handles, and gives out others.
func TestRestore(t *testing.T) {
	table := New()
	kept, gone := add(t, table), add(t, table)
	_, err := Take[thing](table, gone.h)
	require.NoError(t, err)

	again, err := Restore(table.Snapshot())
	require.NoError(t, err)
	_, err = Lookup[thing](again, kept.h)
	require.ErrorIs(t, err, gpuerr.Stale, "its objects are put in")
	require.NoError(t, again.Put(kept, kept.h))
	require.Error(t, again.Put(kept, kept.h), "twice")
	require.Error(t, again.Put(gone, gone.h), "it is over")
	require.NoError(t, again.CheckFree())
	require.NotEqual(t, gone.h, add(t, again).h)

	for name, told := range map[string]Snapshot{
		"no generation": {},
		"free twice":    {FirstGeneration: 1, Generations: []uint32{2, 2}, FreeSlots: []uint32{0, 0}},
		"beyond":        {FirstGeneration: 1, Generations: []uint32{2}, FreeSlots: []uint32{1}},
		"used up":       {FirstGeneration: 1, Generations: []uint32{0}, FreeSlots: []uint32{0}},
		"too many":      {FirstGeneration: 1, Generations: make([]uint32, maxSlots+1)},
	} {
		_, err := Restore(told)
		require.ErrorIs(t, err, gpuerr.Protocol, name)
	}
}
