package gpu

import (
	"capgpu/ddf"
	"capgpu/gpu/snapshot"
	"capgpu/internal/revoke"
)

// This part of what a driver has told (restore.go) is the memory of a session, which the
// pool's owner knows to be lent, and the buffers in it.

// lent is the adoption of DMA memory, for a heap.
func (im *restorer) lent(iova ddf.IOVA, generation uint64) (ddf.DMABuffer, error) {
	return im.adopt(im.ctx, iova, generation)
}

// memory takes chunks and buffers.
func (im *restorer) memory(s *Session, si *SessionSnapshot) error {
	if err := s.heaps.Shared.RestoreChunks(si.Chunks, im.lent); err != nil {
		return err
	}
	if err := s.heaps.Device.RestoreChunks(si.DeviceChunks, im.lent); err != nil {
		return err
	}
	for i := range si.Buffers {
		if err := im.buffer(s, &si.Buffers[i]); err != nil {
			return err
		}
	}
	return nil
}

func (im *restorer) buffer(s *Session, bi *BufferSnapshot) (err error) {
	if bi.Bytes == 0 || bi.Bytes%ddf.PageBytes != 0 || bi.Usage&^UsageDevice == 0 || bi.Usage&^usageAll != 0 {
		return snapshot.Malformed("a buffer of %d bytes", bi.Bytes)
	}
	b := &buffer{session: s, h: bi.Handle, usage: bi.Usage, bytes: bi.Bytes}
	b.pins.init()
	if b.mem, err = s.heaps.For(!b.mapped()).Restore(bi.Memory, b.bytes, im.lent); err != nil {
		return err
	}
	b.host, b.iova = b.mem.Host(), b.mem.IOVA()
	if err := b.charge(im.ctx); err != nil {
		return err
	}
	for i := range b.charges {
		b.charges[i].Commit()
	}
	if b.node, err = s.node.NewChild("buffer", revoke.Ops{Quiesce: b.quiesce, Unmap: b.unmap, Scrub: b.scrub, Release: b.release}); err != nil {
		return err
	}
	return s.handles.Put(b, b.h)
}
