package manager

import (
	"capgpu/ddf"
	"capgpu/gpuerr"
)

// holder identifies one driver as the owner of lent memory. An epoch has one driver, and two
// during an upgrade. Memory that the successor has adopted stays with the first driver until
// the commit, which moves all of it at once.
//
// nil is the only driver of an epoch without upgrades.
type holder struct {
	// A successor has both, guarded by lentMemory.mu: the memory that existed when it began to
	// adopt, by address, and the part that it has adopted.
	there   map[ddf.IOVA]*dmaMemory
	adopted map[*dmaMemory]struct{}
}

// allocFor is alloc for one driver.
func (g *grants) allocFor(h *holder, bytes uint64) (*dmaMemory, error) {
	d, err := g.alloc(bytes)
	if err != nil {
		return nil, err
	}
	g.lent.mu.Lock()
	defer g.lent.mu.Unlock()
	d.holder = h
	return d, nil
}

// adopt finds memory that another driver of the epoch holds.
func (g *grants) adopt(h *holder, iova ddf.IOVA, generation uint64) (*dmaMemory, error) {
	g.lent.mu.Lock()
	defer g.lent.mu.Unlock()
	if g.lent.revoked {
		return nil, errGrantsRevoked
	}
	if h == nil {
		return nil, gpuerr.New(gpuerr.Denied, "this driver is no successor")
	}

	if h.there == nil {
		h.there, h.adopted = map[ddf.IOVA]*dmaMemory{}, map[*dmaMemory]struct{}{}
		for d := range g.lent.live.all() {
			h.there[d.iova] = d
		}
	}

	d := h.there[iova]
	if _, twice := h.adopted[d]; d != nil && d.generation == generation && g.lent.live.has(d) && !d.going && d.holder != h && !twice {
		h.adopted[d] = struct{}{}
		return d, nil
	}

	return nil, gpuerr.New(gpuerr.Stale, "no memory at %#x of generation %d was lent to the driver before this one", uint64(iova), generation)
}

// dropOf is drop for one driver. It ignores memory of another driver.
func (g *grants) dropOf(h *holder, d *dmaMemory) {
	if g.letGo(h, d) {
		g.drop(d)
	}
}

// letGo notes that a driver frees or has dropped memory, and reports whether the memory is
// that driver's. From here on no successor can adopt it, because it is about to go.
func (g *grants) letGo(h *holder, d *dmaMemory) bool {
	g.lent.mu.Lock()
	defer g.lent.mu.Unlock()
	if d.holder != h {
		return false
	}
	d.going = true
	return true
}

// handOver moves all memory of one driver to another, or none: the other must have adopted
// all of it, except memory that is being freed.
func (g *grants) handOver(from, to *holder) error {
	g.lent.mu.Lock()
	defer g.lent.mu.Unlock()
	if g.lent.revoked {
		return errGrantsRevoked
	}

	held := 0
	for d := range g.lent.live.all() {
		_, known := to.adopted[d]
		if d.holder != from || d.going && !known {
			continue
		}
		if d.going {
			return gpuerr.New(gpuerr.Protocol, "memory of %d bytes at %#x is told of and given back", d.bytes, uint64(d.iova))
		}
		held++
		if !known {
			return gpuerr.New(gpuerr.Protocol, "memory of %d bytes at %#x was not taken over", d.bytes, uint64(d.iova))
		}
	}

	if held != len(to.adopted) {
		return gpuerr.New(gpuerr.Protocol, "%d pieces of memory were taken over, and %d are there", len(to.adopted), held)
	}

	for d := range to.adopted {
		d.holder = to
	}

	to.there, to.adopted = nil, nil
	return nil
}
