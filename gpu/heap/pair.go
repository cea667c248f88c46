package heap

// Pair is the two heaps of a session.
type Pair struct {
	Shared Heap // its client maps
	Device Heap // its client is not given
}

// For is the heap that a buffer lies in.
func (p *Pair) For(device bool) *Heap {
	if device {
		return &p.Device
	}
	return &p.Shared
}

// HeldBytes is the memory that buffers are carved from, in use or kept.
func (p *Pair) HeldBytes() uint64 {
	shared, _ := p.Shared.ChunkBytes()
	device, _ := p.Device.ChunkBytes()
	return shared + device
}

// FreeOne frees a chunk, and reports whether there may be more; see Heap.FreeOne. lost is told
// each error: the chunk is then as good as gone.
func (p *Pair) FreeOne(lost func(error)) (more bool) {
	for _, h := range [...]*Heap{&p.Shared, &p.Device} {
		more, err := h.FreeOne()
		if err != nil {
			lost(err)
		}
		if more {
			return true
		}
	}
	return false
}
