package gpu

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
	// carveBytes is the largest buffer that is carved from a chunk. Larger ones
	// have a DMA buffer of their own.
	carveBytes = 1 << 20
	// Chunks grow with the session: the first is small, so that a thousand idle
	// sessions cost little, and later ones save mappings. They stay below a huge page
	// (2 MiB): of a memfd of huge pages a client can map no piece that begins within one.
	minChunkBytes = 256 << 10
	maxChunkBytes = 1 << 20
	// keepChunkBytes is the largest empty chunk that a session keeps (one of
	// them), so that making and freeing one small buffer maps nothing.
	keepChunkBytes = 1 << 20
)

// memory is the DMA memory of one session.
//
// Chunks are never shared between sessions: a client maps the whole memfd that a
// buffer is carved from, so everything in a chunk is its own. That also means
// that a client may write into a range after it destroyed the buffer there; a
// later buffer of the same session may then begin with those bytes, which are
// nobody else's. Towards everybody else memory is zero before it is handed out
// and zeroed after: new DMA buffers come zeroed, a carved range is scrubbed
// before it can be carved again, and freeing a DMA buffer scrubs it.
//
// When the whole session goes, chunks are freed as a whole (which scrubs them)
// and their ranges are not scrubbed one by one.
type memory struct {
	dma     ddf.DMAPool
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
	used  uint64   // pages; guarded by memory.mu
	pages []uint64 // guarded by memory.mu
}

// extent is a piece of DMA memory; chunk is nil if it is all of dma.
type extent struct {
	dma   ddf.DMABuffer
	chunk *chunk
	off   uint64
	bytes uint64
}

// alloc returns zeroed memory of a multiple of a page.
func (m *memory) alloc(ctx context.Context, bytes uint64) (extent, error) {
	if bytes > carveBytes {
		dma, err := m.newDMA(ctx, bytes)
		return extent{dma: dma, bytes: bytes}, err
	}
	if x, ok := m.carve(bytes); ok {
		return x, nil
	}
	m.mu.Lock()
	size := max(minChunkBytes, uint64(1)<<bits.Len64(max(m.carved, bytes)-1))
	m.mu.Unlock()
	size = min(size, maxChunkBytes)
	dma, err := m.newDMA(ctx, size)
	if err != nil && size > bytes { // little is left: take just what is needed
		size = bytes
		dma, err = m.newDMA(ctx, size)
	}
	if err != nil {
		return extent{}, err
	}
	c := &chunk{dma: dma, bytes: size, pages: make([]uint64, (size/ddf.PageBytes+63)/64)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.chunks = append(m.chunks, c)
	return m.takeLocked(c, 0, bytes), nil
}

// newDMA asks the pool, and believes no more than it must of the answer.
func (m *memory) newDMA(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	ctx, stop := whileOpen(ctx, m.done)
	defer stop()
	dma, err := m.charged(func() (ddf.DMABuffer, error) { return m.dma.Alloc(ctx, bytes) })
	if err != nil {
		return nil, err
	}
	if dma.Size() < bytes || uint64(len(dma.Bytes())) < bytes {
		dma.Free()
		return nil, gpuerr.New(gpuerr.Internal, "asked the DMA pool for %d bytes, got %d", bytes, dma.Size())
	}
	return dma, nil
}

// carve finds room in the chunks there are.
func (m *memory) carve(bytes uint64) (extent, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.chunks {
		if c.bytes-c.used*ddf.PageBytes < bytes {
			continue
		}
		if page, ok := c.find(bytes / ddf.PageBytes); ok {
			return m.takeLocked(c, page, bytes), true
		}
	}
	return extent{}, false
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

// +checklocks:m.mu
func (m *memory) takeLocked(c *chunk, page, bytes uint64) extent {
	n := bytes / ddf.PageBytes
	for p := page; p < page+n; p++ {
		c.pages[p/64] |= 1 << (p % 64)
	}
	c.used += n
	m.carved += bytes
	return extent{dma: c.dma, chunk: c, off: page * ddf.PageBytes, bytes: bytes}
}

// scrub zeroes an extent. It must be out of the device's reach by its jobs.
func (x extent) scrub() error {
	if x.chunk == nil {
		return x.dma.Free() // unmaps, then scrubs
	}
	if err := x.dma.Scrub(x.off, x.bytes); err != nil {
		host := x.dma.Bytes()
		if x.off+x.bytes > uint64(len(host)) {
			return nil // the mapping is gone, and with it the memory
		}
		clear(host[x.off : x.off+x.bytes])
	}
	return nil
}

// release makes a scrubbed extent free for the next buffer.
func (m *memory) release(x extent) error {
	if x.chunk == nil {
		return nil
	}
	empty := m.give(x)
	if empty == nil {
		return nil
	}
	return empty.dma.Free()
}

// give returns the chunk that is to be freed, if any.
func (m *memory) give(x extent) *chunk {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := x.chunk
	for p := x.off / ddf.PageBytes; p < (x.off+x.bytes)/ddf.PageBytes; p++ {
		c.pages[p/64] &^= 1 << (p % 64)
	}
	c.used -= x.bytes / ddf.PageBytes
	m.carved -= x.bytes
	if c.used > 0 || (c.bytes <= keepChunkBytes && !m.otherEmptyLocked(c)) {
		return nil
	}
	m.removeLocked(c)
	return c
}

// +checklocks:m.mu
func (m *memory) otherEmptyLocked(c *chunk) bool {
	for _, other := range m.chunks {
		if other != c && other.used == 0 {
			return true
		}
	}
	return false
}

// +checklocks:m.mu
func (m *memory) removeLocked(c *chunk) {
	for i, other := range m.chunks {
		if other == c {
			last := len(m.chunks) - 1
			m.chunks[i], m.chunks[last] = m.chunks[last], nil
			m.chunks = m.chunks[:last]
			return
		}
	}
}

// freeOne frees a chunk, and reports whether there are more. No job may use one, and
// no buffer can be made any more.
func (m *memory) freeOne() (more bool, err error) {
	m.mu.Lock()
	last := len(m.chunks) - 1
	if last < 0 {
		m.mu.Unlock()
		return false, nil
	}
	c := m.chunks[last]
	m.chunks[last] = nil
	m.chunks = m.chunks[:last]
	m.mu.Unlock()
	crashpoint.Here("driver.memory.freeing")
	if err = c.dma.Free(); err != nil {
		c.stuck = true
	}
	return last > 0, err
}

// whileOpen is ctx, cancelled also when done is closed: no call to another process
// holds up a close.
func whileOpen(ctx context.Context, done <-chan struct{}) (context.Context, func()) {
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

// heldBytes is the DMA memory of the session, in use or kept.
func (m *memory) heldBytes() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var n uint64
	for _, c := range m.chunks {
		n += c.bytes
	}
	return n
}
