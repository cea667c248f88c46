// Package heap is the memory of one kind that one session has: chunks of DMA memory, and the
// extents that are carved from them for its buffers.
//
// Chunks are never shared between sessions: a client maps the whole memfd that a
// buffer is carved from, so everything in a chunk is its own. That also means
// that a client may write into a range after it destroyed the buffer there; a
// later buffer of the same session may then begin with those bytes, which are
// nobody else's. Towards everybody else memory is zero before it is handed out
// and zeroed after: new DMA buffers come zeroed, a carved range is scrubbed
// before it can be carved again, and freeing a DMA buffer scrubs it.
//
// A session has two heaps, one that its client maps and one that it is not given, so that
// a buffer of the second kind never lies in a chunk that the client has a descriptor of.
//
// When the whole session goes, chunks are freed as a whole (which scrubs them)
// and their ranges are not scrubbed one by one.
//
// Lock: Heap.mu; it is not held while the pool is called.
package heap

import (
	"context"
	"log/slog"
	"math/bits"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/ledger"
)

const (
	// CarveBytes is the largest extent that is carved from a chunk. Larger ones
	// have a DMA buffer of their own.
	CarveBytes = 1 << 20
	// KeptBytes is the largest empty chunk that a heap keeps (one of
	// them), so that making and freeing one small buffer maps nothing.
	KeptBytes = 1 << 20

	// Chunks grow with the session: the first is small, so that a thousand idle
	// sessions cost little, and later ones save mappings. They stay below a huge page
	// (2 MiB): of a memfd of huge pages a client can map no piece that begins within one.
	minChunkBytes = 256 << 10
	maxChunkBytes = 1 << 20
)

// Heap is memory of one session. Begin readies it.
type Heap struct {
	pool    ddf.DMAPool
	account *ledger.Account // the session's
	log     *slog.Logger
	done    <-chan struct{} // closed when the session is closing

	mu sync.Mutex
	// +checklocks:mu
	chunks []*chunk
	// +checklocks:mu
	carved uint64 // bytes in use in chunks
}

// chunk is a DMA buffer in pages. A set bit is a page in use.
type chunk struct {
	dma   ddf.DMABuffer
	bytes uint64
	stuck bool     // could not be unmapped
	used  uint64   // pages; guarded by Heap.mu
	pages []uint64 // guarded by Heap.mu
}

func newChunk(dma ddf.DMABuffer, bytes uint64) *chunk {
	return &chunk{dma: dma, bytes: bytes, pages: make([]uint64, (bytes/ddf.PageBytes+63)/64)}
}

// Begin says where memory comes from, which session's account is charged for its
// descriptors, and when that session closes: then no call to the pool goes on.
func (h *Heap) Begin(pool ddf.DMAPool, account *ledger.Account, log *slog.Logger, closing <-chan struct{}) {
	h.pool, h.account, h.log, h.done = pool, account, log, closing
}

// Alloc returns zeroed memory of a multiple of a page.
func (h *Heap) Alloc(ctx context.Context, bytes uint64) (Extent, error) {
	if bytes > CarveBytes {
		dma, err := h.newDMA(ctx, bytes)
		return Extent{dma: dma, bytes: bytes}, err
	}
	if x, ok := h.carve(bytes); ok {
		return x, nil
	}

	h.mu.Lock()
	size := max(minChunkBytes, uint64(1)<<bits.Len64(max(h.carved, bytes)-1))
	h.mu.Unlock()
	size = min(size, maxChunkBytes)
	dma, err := h.newDMA(ctx, size)
	if err != nil && size > bytes { // little is left: take just what is needed
		size = bytes
		dma, err = h.newDMA(ctx, size)
	}
	if err != nil {
		return Extent{}, err
	}

	c := newChunk(dma, size)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.chunks = append(h.chunks, c)
	return h.takeLocked(c, 0, bytes), nil
}

// newDMA asks the pool, and believes no more than it must of the answer.
func (h *Heap) newDMA(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	ctx, stop := WhileOpen(ctx, h.done)
	defer stop()
	dma, err := h.charged(func() (ddf.DMABuffer, error) { return h.pool.Alloc(ctx, bytes) })
	if err != nil {
		return nil, err
	}
	if dma.Size() < bytes || uint64(len(dma.Bytes())) < bytes {
		dma.Free()
		return nil, gpuerr.New(gpuerr.Internal, "asked the DMA pool for %d bytes, got %d", bytes, dma.Size())
	}
	return dma, nil
}

// WhileOpen is ctx, cancelled also when done is closed: no call to another process
// holds up a close.
func WhileOpen(ctx context.Context, done <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel()
		wg.Wait()
	}
}

// carve finds room in the chunks there are.
func (h *Heap) carve(bytes uint64) (Extent, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.chunks {
		if c.bytes-c.used*ddf.PageBytes < bytes {
			continue
		}
		if page, ok := c.find(bytes / ddf.PageBytes); ok {
			return h.takeLocked(c, page, bytes), true
		}
	}
	return Extent{}, false
}

// find returns the first run of n free pages.
func (c *chunk) find(n uint64) (uint64, bool) {
	total, run := c.bytes/ddf.PageBytes, uint64(0)
	for p := uint64(0); p < total; p++ {
		word := c.pages[p/64]
		if p%64 == 0 && word == ^uint64(0) {
			p, run = p+63, 0
			continue
		}
		if word&(1<<(p%64)) != 0 {
			run = 0
			continue
		}
		if run++; run == n {
			return p + 1 - n, true
		}
	}
	return 0, false
}

// +checklocks:h.mu
func (h *Heap) takeLocked(c *chunk, page, bytes uint64) Extent {
	n := bytes / ddf.PageBytes
	for p := page; p < page+n; p++ {
		c.pages[p/64] |= 1 << (p % 64)
	}
	c.used += n
	h.carved += bytes
	return Extent{dma: c.dma, chunk: c, off: page * ddf.PageBytes, bytes: bytes}
}

// Release makes a scrubbed extent free for the next buffer.
func (h *Heap) Release(x Extent) error {
	if x.chunk == nil {
		return nil
	}
	empty := h.give(x)
	if empty == nil {
		return nil
	}
	return empty.dma.Free()
}

// give returns the chunk that is to be freed, if any.
func (h *Heap) give(x Extent) *chunk {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := x.chunk
	for p := x.off / ddf.PageBytes; p < (x.off+x.bytes)/ddf.PageBytes; p++ {
		c.pages[p/64] &^= 1 << (p % 64)
	}
	c.used -= x.bytes / ddf.PageBytes
	h.carved -= x.bytes
	if c.used > 0 || (c.bytes <= KeptBytes && !h.otherEmptyLocked(c)) {
		return nil
	}
	h.removeLocked(c)
	return c
}

// +checklocks:h.mu
func (h *Heap) otherEmptyLocked(c *chunk) bool {
	for _, other := range h.chunks {
		if other != c && other.used == 0 {
			return true
		}
	}
	return false
}

// +checklocks:h.mu
func (h *Heap) removeLocked(c *chunk) {
	for i, other := range h.chunks {
		if other == c {
			last := len(h.chunks) - 1
			h.chunks[i], h.chunks[last] = h.chunks[last], nil
			h.chunks = h.chunks[:last]
			return
		}
	}
}

// FreeOne frees a chunk, and reports whether there are more. No job may use one, and
// no buffer can be made any more.
func (h *Heap) FreeOne() (more bool, err error) {
	h.mu.Lock()
	last := len(h.chunks) - 1
	if last < 0 {
		h.mu.Unlock()
		return false, nil
	}
	c := h.chunks[last]
	h.chunks[last] = nil
	h.chunks = h.chunks[:last]
	h.mu.Unlock()

	crashpoint.Here("driver.memory.freeing")
	if err = c.dma.Free(); err != nil {
		c.stuck = true
	}
	return last > 0, err
}

// ChunkBytes is the memory of the chunks, in use or kept, and how many they are.
func (h *Heap) ChunkBytes() (bytes uint64, chunks int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.chunks {
		bytes += c.bytes
	}
	return bytes, len(h.chunks)
}
