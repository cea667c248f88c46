package engine

import (
	"context"
	"errors"
	"slices"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
)

// piece is memory that the engine of a group reaches: of the host, which each next engine imports
// again, or the device's own, which is lost with its engine.
type piece struct {
	id    wire.MemoryID
	group uint32
	iova  uint64
	bytes uint64
	host  ddf.DMABuffer // nil: the device's own

	// These are of the device's own memory, and guarded by Backend.mu:
	in    *proc  // the engine that has it; nil: it is lost
	dirty []span // that are zeroed before the next job (local.go)
	scrub *job   // that does it
}

// span is a part of a piece, in bytes.
type span struct{ off, n uint64 }

// memoryTable is all memory, by group and address.
type memoryTable struct {
	ids    ids
	groups map[uint32][]*piece // by address
	local  localUse
}

func newMemoryTable() memoryTable { return memoryTable{groups: map[uint32][]*piece{}} }

func (t *memoryTable) search(group uint32, iova uint64) (int, bool) {
	return slices.BinarySearchFunc(t.groups[group], iova, func(p *piece, iova uint64) int {
		switch {
		case p.iova < iova:
			return -1
		case p.iova > iova:
			return 1
		}
		return 0
	})
}

// add makes a piece known. It is false if it overlaps another of its group.
func (t *memoryTable) add(p *piece) bool {
	i, _ := t.search(p.group, p.iova)
	all := t.groups[p.group]
	if i > 0 && all[i-1].iova+all[i-1].bytes > p.iova || i < len(all) && p.iova+p.bytes > all[i].iova {
		return false
	}
	p.id = wire.MemoryID(t.ids.take())
	t.groups[p.group] = slices.Insert(all, i, p)
	return true
}

// remove forgets a piece.
func (t *memoryTable) remove(p *piece) {
	i, found := t.search(p.group, p.iova)
	if !found || t.groups[p.group][i] != p {
		return
	}
	t.ids.give(uint32(p.id))
	if t.groups[p.group] = slices.Delete(t.groups[p.group], i, i+1); len(t.groups[p.group]) == 0 {
		delete(t.groups, p.group)
	}
}

// find returns the piece that a span of a group's job lies in; nil if there is none.
func (t *memoryTable) find(group uint32, iova, n uint64) *piece {
	i, found := t.search(group, iova)
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	p := t.groups[group][i]
	if off := iova - p.iova; off > p.bytes || n > p.bytes-off {
		return nil
	}
	return p
}

// groupOf is that of a context; 0: no tenant's.
func groupOf(c *backend.Context) uint32 {
	if c == nil {
		return 0
	}
	return c.Group
}

// Map implements backend.Mapper. It opens the group's engine, if it has none.
func (b *Backend) Map(ctx context.Context, c *backend.Context, m ddf.DMABuffer) error {
	x := &piece{group: groupOf(c), iova: uint64(m.IOVA()), bytes: m.Size(), host: m}
	b.mu.Lock()
	ok := b.memory.add(x)
	b.mu.Unlock()
	if !ok {
		return gpuerr.New(gpuerr.Internal, "memory at %#x is mapped already", x.iova)
	}

	if err := b.withProc(ctx, x.group, func(p *proc) error { return p.imports(x) }); err != nil {
		b.mu.Lock()
		b.memory.remove(x)
		b.mu.Unlock()
		return err
	}
	return nil
}

// withProc calls f with the engine of a group, and again with the next one if that dies under it:
// it may have had to make room, or another's job may have been the end of it.
func (b *Backend) withProc(ctx context.Context, group uint32, f func(p *proc) error) error {
	for tries := 0; ; tries++ {
		p, err := b.proc(ctx, group)
		if err == nil {
			err = f(p)
		}
		if !errors.Is(err, errEngineDied) || tries == maxTries {
			return err
		}
	}
}

const maxTries = 2

// Unmap implements backend.Mapper.
func (b *Backend) Unmap(c *backend.Context, m ddf.DMABuffer) error {
	b.mu.Lock()
	x := b.memory.find(groupOf(c), uint64(m.IOVA()), m.Size())
	if x == nil || x.host == nil {
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()

	if err := b.release(x); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.memory.remove(x)
	return nil
}

// release takes a piece from the engine that has it. It returns when that has let go, or is dead.
func (b *Backend) release(x *piece) error {
	ctx, stop := context.WithTimeout(context.Background(), killBound)
	defer stop()
	p := b.procOf(x.group)
	if p == nil {
		// One may be dying: its memory is its own until it is dead.
		return b.awaitDeath(ctx, x.group)
	}
	err := p.frees(x)
	if err == nil {
		return nil
	}

	// It died, or is killed for this.
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failLocked(p, "memory was not freed: "+err.Error(), false)
	for !p.buried {
		if err := b.waitLocked(ctx); err != nil {
			return gpuerr.New(gpuerr.Internal, "take memory from an engine: %v", err)
		}
	}
	if b.state == gone {
		return b.goneLocked()
	}
	return nil
}
