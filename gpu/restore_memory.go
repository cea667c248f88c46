package gpu

import (
	"capgpu/ddf"
	"capgpu/internal/revoke"
)

// This part of what a driver has told (restore.go) is the memory of a session, which the
// pool's owner knows to be lent, and the buffers in it.

func (im *restorer) lend(m *memory, iova, generation, bytes uint64) (ddf.DMABuffer, error) {
	b, err := m.charged(func() (ddf.DMABuffer, error) { return im.adopt(im.ctx, ddf.IOVA(iova), generation) })
	if err != nil {
		return nil, err
	}
	if uint64(b.IOVA()) != iova || b.Generation() != generation || b.Size() < bytes || uint64(len(b.Bytes())) < bytes {
		return nil, malformed("memory of %d bytes at %#x is not that which the pool has lent", bytes, iova)
	}
	return b, nil
}

// memory takes chunks and buffers.
func (im *restorer) memory(s *Session, si *SessionSnapshot) error {
	m := &s.memory
	for _, ci := range si.Chunks {
		if ci.Bytes == 0 || ci.Bytes > maxChunkBytes || ci.Bytes%ddf.PageBytes != 0 {
			return malformed("a chunk of %d bytes", ci.Bytes)
		}
		dma, err := im.lend(m, ci.IOVA, ci.Generation, ci.Bytes)
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.chunks = append(m.chunks, &chunk{dma: dma, bytes: ci.Bytes, pages: make([]uint64, (ci.Bytes/ddf.PageBytes+63)/64)})
		m.mu.Unlock()
	}
	for i := range si.Buffers {
		if err := im.buffer(s, &si.Buffers[i]); err != nil {
			return err
		}
	}
	return nil
}

func (im *restorer) buffer(s *Session, bi *BufferSnapshot) (err error) {
	if bi.Bytes == 0 || bi.Bytes%ddf.PageBytes != 0 || bi.Usage == 0 || bi.Usage&^usageAll != 0 {
		return malformed("a buffer of %d bytes", bi.Bytes)
	}
	b := &buffer{session: s, h: bi.Handle, usage: bi.Usage, bytes: bi.Bytes}
	b.pins.init()
	if b.mem, err = im.extent(&s.memory, bi); err != nil {
		return err
	}
	b.host, b.iova = b.mem.dma.Bytes()[b.mem.off:b.mem.off+b.mem.bytes], uint64(b.mem.dma.IOVA())+b.mem.off
	if err := b.charge(im.ctx); err != nil {
		return err
	}
	for i := range b.charges {
		b.charges[i].Commit()
	}
	if b.node, err = s.node.NewChild("buffer", revoke.Ops{Quiesce: b.quiesce, Unmap: b.unmap, Scrub: b.scrub, Release: b.release}); err != nil {
		return err
	}
	return s.handles.put(b, b.h)
}

// extent is where a buffer lies: memory of its own, or pages of a chunk that are nobody
// else's.
func (im *restorer) extent(m *memory, bi *BufferSnapshot) (extent, error) {
	if bi.Chunk < 0 {
		dma, err := im.lend(m, bi.IOVA, bi.Generation, bi.Bytes)
		return extent{dma: dma, bytes: bi.Bytes}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if bi.Chunk >= len(m.chunks) || bi.Off%ddf.PageBytes != 0 {
		return extent{}, malformed("a buffer of chunk %d at %d", bi.Chunk, bi.Off)
	}
	c := m.chunks[bi.Chunk]
	if bi.Off > c.bytes || bi.Bytes > c.bytes-bi.Off {
		return extent{}, malformed("a buffer at %d of %d bytes is beyond its chunk", bi.Off, bi.Bytes)
	}
	for p := bi.Off / ddf.PageBytes; p < (bi.Off+bi.Bytes)/ddf.PageBytes; p++ {
		if c.pages[p/64]&(1<<(p%64)) != 0 {
			return extent{}, malformed("two buffers share a page of chunk %d", bi.Chunk)
		}
	}
	return m.takeLocked(c, bi.Off/ddf.PageBytes, bi.Bytes), nil
}
