package heap

import (
	"capgpu/ddf"
	"capgpu/gpu/snapshot"
)

// A heap is told to the driver's successor, which takes its DMA buffers over: the pool's owner
// knows them to be lent.

// ChunkSnapshot is one piece of DMA memory from which extents are carved.
type ChunkSnapshot struct {
	IOVA       uint64
	Generation uint64
	Bytes      uint64
}

// ExtentSnapshot is the memory of one buffer.
type ExtentSnapshot struct {
	Chunk      int    // of the heap's; -1: memory of its own
	Off        uint64 // in the chunk
	IOVA       uint64 // of its own memory
	Generation uint64
}

// Chunks tells the chunks, and the place of each.
func (h *Heap) Chunks() ([]ChunkSnapshot, ChunkIndex) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []ChunkSnapshot
	index := ChunkIndex{}
	for i, c := range h.chunks {
		index[c] = i
		all = append(all, ChunkSnapshot{IOVA: uint64(c.dma.IOVA()), Generation: c.dma.Generation(), Bytes: c.bytes})
	}
	return all, index
}

// ChunkIndex is the place of each chunk in the snapshot.
type ChunkIndex map[*chunk]int

// Snapshot tells an extent of the heap that index is of.
func (x Extent) Snapshot(index ChunkIndex) ExtentSnapshot {
	if x.chunk != nil {
		return ExtentSnapshot{Chunk: index[x.chunk], Off: x.off}
	}
	return ExtentSnapshot{Chunk: -1, IOVA: uint64(x.dma.IOVA()), Generation: x.dma.Generation()}
}

// Adopt returns the driver's side of a DMA buffer that the pool has lent to an earlier
// driver, named by its address and its generation there.
type Adopt func(iova ddf.IOVA, generation uint64) (ddf.DMABuffer, error)

// RestoreChunks takes over chunks of which nothing is in use yet.
func (h *Heap) RestoreChunks(chunks []ChunkSnapshot, adopt Adopt) error {
	for _, ci := range chunks {
		if ci.Bytes == 0 || ci.Bytes > maxChunkBytes || ci.Bytes%ddf.PageBytes != 0 {
			return snapshot.Malformed("a chunk of %d bytes", ci.Bytes)
		}
		dma, err := h.lent(ci.IOVA, ci.Generation, ci.Bytes, adopt)
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.chunks = append(h.chunks, newChunk(dma, ci.Bytes))
		h.mu.Unlock()
	}
	return nil
}

func (h *Heap) lent(iova, generation, bytes uint64, adopt Adopt) (ddf.DMABuffer, error) {
	b, err := h.charged(func() (ddf.DMABuffer, error) { return adopt(ddf.IOVA(iova), generation) })
	if err != nil {
		return nil, err
	}
	if uint64(b.IOVA()) != iova || b.Generation() != generation || b.Size() < bytes || uint64(len(b.Bytes())) < bytes {
		return nil, snapshot.Malformed("memory of %d bytes at %#x is not that which the pool has lent", bytes, iova)
	}
	return b, nil
}

// Restore takes over an extent of so many bytes, a multiple of a page: memory of its own, or
// pages of a chunk that are nobody else's.
func (h *Heap) Restore(xi ExtentSnapshot, bytes uint64, adopt Adopt) (Extent, error) {
	if xi.Chunk < 0 {
		dma, err := h.lent(xi.IOVA, xi.Generation, bytes, adopt)
		return Extent{dma: dma, bytes: bytes}, err
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if xi.Chunk >= len(h.chunks) || xi.Off%ddf.PageBytes != 0 {
		return Extent{}, snapshot.Malformed("a buffer of chunk %d at %d", xi.Chunk, xi.Off)
	}
	c := h.chunks[xi.Chunk]
	if xi.Off > c.bytes || bytes > c.bytes-xi.Off {
		return Extent{}, snapshot.Malformed("a buffer at %d of %d bytes is beyond its chunk", xi.Off, bytes)
	}
	for p := xi.Off / ddf.PageBytes; p < (xi.Off+bytes)/ddf.PageBytes; p++ {
		if c.pages[p/64]&(1<<(p%64)) != 0 {
			return Extent{}, snapshot.Malformed("two buffers share a page of chunk %d", xi.Chunk)
		}
	}
	return h.takeLocked(c, xi.Off/ddf.PageBytes, bytes), nil
}
