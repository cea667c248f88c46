package heap

import (
	"log/slog"

	"capgpu/ddf"
	"capgpu/ledger"
)

// Extent is the memory of one buffer: a DMA buffer of its own, or pages of a chunk.
type Extent struct {
	dma   ddf.DMABuffer
	chunk *chunk // nil: all of dma
	off   uint64
	bytes uint64
}

// Host is the driver's mapping; the client may change it at any time.
func (x Extent) Host() []byte { return x.dma.Bytes()[x.off : x.off+x.bytes] }

// IOVA is the extent's address for the device.
func (x Extent) IOVA() uint64 { return uint64(x.dma.IOVA()) + x.off }

// File is the memfd that the extent lies in, and where. The heap keeps it; fd is -1 where
// there is none.
func (x Extent) File() (fd int, off uint64) { return x.dma.FD(), x.off }

// Carved reports whether the extent shares its DMA buffer with others.
func (x Extent) Carved() bool { return x.chunk != nil }

// Stuck reports whether the chunk of a carved extent could not be unmapped when its session
// was closed.
func (x Extent) Stuck() bool { return x.chunk != nil && x.chunk.stuck }

// Scrub zeroes an extent; one with a DMA buffer of its own is unmapped first, and freed. It
// must be out of the device's reach by its jobs.
func (x Extent) Scrub() error {
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

// DescriptorCount is how many descriptors of the process a DMA buffer is charged for. Each
// has one mapping of the process, too.
const DescriptorCount = 1

// chargedBuffer is DMA memory; its descriptor is charged to its session.
type chargedBuffer struct {
	ddf.DMABuffer
	charge ledger.Receipt
	log    *slog.Logger
}

// charged is what get returns, charged to the session.
func (h *Heap) charged(get func() (ddf.DMABuffer, error)) (ddf.DMABuffer, error) {
	charge, err := h.account.Reserve(ledger.Descriptors, DescriptorCount)
	if err != nil {
		return nil, err
	}
	b, err := get()
	if err != nil {
		charge.Release()
		return nil, err
	}
	charge.Commit()
	return &chargedBuffer{DMABuffer: b, charge: charge, log: h.log}, nil
}

// Free implements ddf.DMABuffer. An error says that the device may still reach the buffer:
// it must not go on. If anything else went wrong, the memory is gone already, and only
// the log hears of it.
func (b *chargedBuffer) Free() error {
	hadFD := b.FD() >= 0
	err := b.DMABuffer.Free()
	b.charge.Release() // of one that is still mapped, too: the process ends for it
	switch {
	case err == nil:
		return nil
	case !hadFD || b.FD() >= 0:
		return err
	}
	b.log.Warn("device memory was freed, and something about it failed", "error", err)
	return nil
}
