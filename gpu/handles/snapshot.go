package handles

import (
	"slices"

	"capgpu/gpu/snapshot"
)

// Snapshot is the slots of a table, without their objects.
type Snapshot struct {
	FirstGeneration uint32
	Generations     []uint32
	FreeSlots       []uint32
}

// Snapshot tells the slots.
func (t *Table) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Snapshot{t.first, slices.Clone(t.generations), slices.Clone(t.free)}
}

// Restore makes a table of what another driver has told. Its objects are put in, one by one.
func Restore(told Snapshot) (*Table, error) {
	if len(told.Generations) > maxSlots || len(told.FreeSlots) > len(told.Generations) || told.FirstGeneration == 0 {
		return nil, snapshot.Malformed("a table of %d handles", len(told.Generations))
	}

	pages := make([]*slotPage, (len(told.Generations)+pageSlots-1)/pageSlots)
	for i := range pages {
		pages[i] = new(slotPage)
	}

	seen := map[uint32]bool{}
	for _, i := range told.FreeSlots {
		if seen[i] || int(i) >= len(told.Generations) || told.Generations[i] == 0 {
			return nil, snapshot.Malformed("slot %d is not free", i)
		}
		seen[i] = true
	}

	t := &Table{first: told.FirstGeneration, generations: slices.Clone(told.Generations), free: slices.Clone(told.FreeSlots)}
	t.pages.Store(&pages)
	return t, nil
}

// Put publishes an object under the handle that its client knows.
func (t *Table) Put(obj any, h Handle) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := uint32(h)
	if int(i) >= len(t.generations) || t.generations[i] != uint32(h>>32) || t.generations[i] == 0 || t.slot(i).Load() != nil {
		return snapshot.Malformed("handle %#x is not one of its table", uint64(h))
	}
	t.live++
	t.slot(i).Store(&ref{h: h, obj: obj})
	return nil
}

// CheckFree refuses a table with an object in a slot that is free.
func (t *Table) CheckFree() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, i := range t.free {
		if t.slot(i).Load() != nil {
			return snapshot.Malformed("slot %d is free and has an object", i)
		}
	}
	return nil
}
