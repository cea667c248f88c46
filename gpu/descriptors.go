package gpu

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// What an object has of the process's descriptors.
const (
	sessionDescriptors = 1 // its socket, which is not the core's but is there
	dmaDescriptors     = 1
	// A queue has five and their duplicates until its client has it, then three.
	newQueueDescriptors = 8
	queueDescriptors    = 3
)

// descriptors bounds what all tenants together can have of the process's
// descriptors, so that what the process itself needs to go on is always left:
// without a free one it could not even take in the next session. Tenants are
// charged for what they make in classes of the ledger; this is the bound under
// which those limits, whatever they add up to, must stay.
type descriptors struct {
	limit int64
	held  atomic.Int64
}

// descriptorLimit is what the objects may have when the process may have that
// many: all but a quarter.
func descriptorLimit(process uint64) int64 {
	process = min(process, math.MaxInt32)
	return int64(process - min(max(process/4, 64), process/2))
}

func newDescriptors(limit int) *descriptors {
	if limit > 0 {
		return &descriptors{limit: int64(limit)}
	}
	return &descriptors{limit: descriptorLimit(processFiles)}
}

// processFiles is how many descriptors the process may have (RLIMIT_NOFILE), as it was
// started with: a confined driver may not ask.
var processFiles = func() uint64 {
	process := unix.Rlimit{Cur: 1024}
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &process) // cannot fail; if it does, the usual number stands
	return process.Cur
}()

func (d *descriptors) take(n int64) error {
	if now := d.held.Add(n); now > d.limit {
		d.held.Add(-n)
		return gpuerr.Refused("descriptors", uint64(n), uint64(max(d.limit-(now-n), 0)))
	}
	return nil
}

func (d *descriptors) give(n int64) { d.held.Add(-n) }

// countedPool is a DMA pool whose buffers are counted in descriptors.
type countedPool struct {
	ddf.DMAPool
	descriptors *descriptors
	log         *slog.Logger
}

// Alloc implements ddf.DMAPool.
func (p *countedPool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	if err := p.descriptors.take(dmaDescriptors); err != nil {
		return nil, err
	}
	b, err := p.DMAPool.Alloc(ctx, bytes)
	if err != nil {
		p.descriptors.give(dmaDescriptors)
		return nil, err
	}
	return &countedBuffer{DMABuffer: b, pool: p}, nil
}

type countedBuffer struct {
	ddf.DMABuffer
	pool  *countedPool
	freed atomic.Bool
}

// Free implements ddf.DMABuffer. An error says that the buffer is still mapped: it
// still counts, and the device must not go on. What else went wrong, when the
// memory is gone already, concerns nobody but the log.
func (b *countedBuffer) Free() error {
	err := b.DMABuffer.Free()
	if b.FD() >= 0 {
		return err
	}
	if err != nil {
		b.pool.log.Warn("device memory was freed, and something about it failed", "error", err)
	}
	if b.freed.CompareAndSwap(false, true) {
		b.pool.descriptors.give(dmaDescriptors)
	}
	return nil
}
