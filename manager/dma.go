package manager

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"capgpu/audit/dma"
	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/courtesy"
	"capgpu/internal/crashpoint"
	"capgpu/internal/shm"
	"capgpu/iommu"
	"capgpu/ledger"
)

// dmaMemory is one piece of memory that device and driver reach.
//
//	alloc ──► mapped ──free──► unmapped, punched, closed, charges back (punch.go)
//	                    │
//	                    └ the unmap failed, or the device could not be stopped ──► kept
//
// Kept memory is charged, open and mapped here until the function is closed: its
// pages are nobody else's while the device may write to them.
type dmaMemory struct {
	iova       ddf.IOVA
	bytes      uint64
	generation uint64
	memory     *shm.Memory
	host       []byte // the manager's own mapping, which is what the domain maps

	bytesCharge, entryCharge ledger.Receipt

	links    dmaLinks    // guarded by grants.mu
	holder   *holder     // who may free it; guarded by grants.mu
	going    bool        // it is being freed, or dropped: no successor's; guarded by grants.mu
	recorded atomic.Bool // that it is mapped
	sum      dma.Sum     // of it in the account of the audit log; set before recorded
	kept     atomic.Bool

	freeing sync.Once
	freeErr error // read after freeing
}

func (d *dmaMemory) isKept() bool { return d.kept.Load() }

// alloc charges, makes, maps and records memory, in that order.
func (g *grants) alloc(bytes uint64) (d *dmaMemory, err error) {
	if err := g.checkBytes(bytes); err != nil {
		return nil, err
	}
	if lost := g.function.Domain().Lost(); lost != nil {
		return nil, gpuerr.New(gpuerr.IO, "nothing is mapped any more: %v", lost)
	}

	d = &dmaMemory{bytes: (bytes + ddf.PageBytes - 1) &^ (ddf.PageBytes - 1)}
	if s, ok := g.zeroPool.take(d.bytes); ok {
		d.memory, d.bytesCharge = s.memory, s.charge
	} else if d.bytesCharge, err = g.charge(d.bytes); err != nil {
		return nil, err
	}

	if d.entryCharge, err = g.account.Reserve(ledger.IOVAEntries, 1); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := g.make(d); err != nil {
		return nil, errors.Join(err, g.dispose(d))
	}

	crashpoint.Here("manager.dma.made")
	courtesy.Step()
	if err := g.mapMemory(d); err != nil {
		if !d.isKept() {
			err = errors.Join(err, g.dispose(d))
		}
		return nil, err
	}

	// Recorded before the driver learns of it: a grant without a record is none.
	crashpoint.Here("manager.dma.mapped")
	courtesy.Step()
	if err := g.journal.mapped(d); err != nil {
		return nil, errors.Join(errNotRecorded(err), g.free(d))
	}

	crashpoint.Here("manager.dma.recorded")
	courtesy.Step()
	d.recorded.Store(true)
	d.bytesCharge.Commit()
	d.entryCharge.Commit()
	return d, nil
}

// charge charges bytes. What is spare is in nobody's way.
func (g *grants) charge(bytes uint64) (ledger.Receipt, error) {
	for {
		r, err := g.account.Reserve(ledger.DeviceMemory, bytes)
		if err == nil || !g.zeroPool.drop() {
			return r, err
		}
	}
}

func (g *grants) make(d *dmaMemory) (err error) {
	if d.memory == nil {
		if d.memory, err = g.create(dmaName, d.bytes); err != nil {
			return err
		}
	}
	d.host, err = d.memory.Map(0, d.bytes, true)
	return err
}

// dmaName is what memory is called in /proc/PID/maps; see also zeroPoolName.
const dmaName = "capgpu-dma"

// create makes a memory file as the policy wants it.
func (g *grants) create(name string, bytes uint64) (*shm.Memory, error) {
	if !g.huge {
		return shm.Create(name, bytes)
	}
	m, err := shm.CreateHuge(name, bytes)
	if err == nil && m.Granule() == shm.PageBytes && bytes%shm.HugeBytes == 0 {
		g.fewHuge.Do(func() {
			g.log.Warn("too few huge pages are free, so memory is of ordinary ones: raise vm.nr_hugepages (told once for each driver)", "bytes", bytes)
		})
	}
	return m, err
}

// mapMemory gives the memory its address and the device the memory.
func (g *grants) mapMemory(d *dmaMemory) error {
	if err := g.place(d); err != nil {
		return err
	}

	// No lock: pinning takes its time.
	if err := g.function.Domain().Map(d.iova, d.host, iommu.ReadWrite); err != nil {
		if lost := g.function.Domain().Lost(); lost != nil {
			g.keep(d, lost)
			return errDomainLost(lost)
		}
		g.giveBack(d.iova)
		return coded(err, "map DMA memory for the device")
	}

	g.mu.Lock()
	if !g.revoked {
		g.live.add(d)
		g.mu.Unlock()
		return nil
	}
	g.mu.Unlock()

	// Revoked meanwhile, and not among what was taken back then.
	if err := g.function.Domain().Unmap(d.iova, d.bytes); err != nil {
		g.keep(d, err)
		return errDomainLost(err)
	}

	g.giveBack(d.iova)
	g.journal.undone(d)
	return errGrantsRevoked
}

// place takes an address.
func (g *grants) place(d *dmaMemory) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked {
		return errGrantsRevoked
	}
	iova, ok := g.space.Take(d.bytes)
	if !ok {
		return gpuerr.New(gpuerr.IO, "no free range of %d bytes is left in the device's address space", d.bytes)
	}
	g.generation++
	d.iova, d.generation = iova, g.generation
	return nil
}

func (g *grants) giveBack(iova ddf.IOVA) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.space.Give(iova)
}

// free unmaps, scrubs, and returns the charge, in that order, whatever becomes of
// the record: an error says that the memory did not go, and a driver that gets one
// must not go on. Idempotent; every caller returns when it is done.
func (g *grants) free(d *dmaMemory) error {
	d.freeing.Do(func() {
		if err := g.function.Domain().Unmap(d.iova, d.bytes); err != nil {
			d.freeErr = errDomainLost(err)
			g.keep(d, err)
			return
		}
		g.giveBack(d.iova)
		crashpoint.Here("manager.dma.unmapped")
		courtesy.Step()
		d.freeErr = g.dispose(d)
		crashpoint.Here("manager.dma.disposed")
		courtesy.Step()
		if d.recorded.Load() {
			g.journal.unmapped(d)
		} else {
			g.journal.undone(d)
		}
		// Only now: revoke waits for the frees that it finds here.
		g.forget(d)
	})
	return d.freeErr
}

// drop notes that the driver has let go of memory without a Free. It looks the same
// when the driver dies: then the function is stopped before anything is unmapped. So
// memory waits for the next request of a driver that lives, or for revoke.
func (g *grants) drop(d *dmaMemory) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live.has(d) {
		g.dropped = append(g.dropped, d)
	}
}

// freeDropped is called by requests of a driver that lives.
func (g *grants) freeDropped() {
	g.mu.Lock()
	dropped := g.dropped
	g.dropped = nil
	g.mu.Unlock()
	for _, d := range dropped {
		if err := g.free(d); err != nil && !d.isKept() {
			g.log.Error("free DMA memory that its driver dropped", "err", err)
		}
	}
}

func (g *grants) forget(d *dmaMemory) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live.remove(d)
}

// abandon takes memory from a function that could not be stopped. The IOMMU no
// longer lets the device reach it, if that can be had; its pages are kept all the
// same, because nothing that the function does is known any more.
func (d *dmaMemory) abandon(g *grants, running error) {
	d.freeing.Do(func() {
		d.freeErr = errDomainLost(errors.Join(running, g.function.Domain().Unmap(d.iova, d.bytes)))
		g.keep(d, running)
	})
}

// keep sets memory aside for as long as the function is open, and dooms the epoch.
func (g *grants) keep(d *dmaMemory, cause error) {
	d.kept.Store(true)
	d.bytesCharge.Commit()
	d.entryCharge.Commit()
	g.mu.Lock()
	g.live.remove(d)
	g.kept = append(g.kept, d)
	g.mu.Unlock()
	detail := fmt.Sprintf("%s iova=%#x bytes=%d generation=%d cause=%q", g.tag(), uint64(d.iova), d.bytes, d.generation, clipped(cause.Error()))
	if _, err := g.own.Append("dma.kept", "", detail); err != nil {
		g.log.Warn("memory is kept from reuse, which no record tells of", "iova", uint64(d.iova), "bytes", d.bytes, "cause", cause, "err", err)
	}
	g.failure.report(&wedgedError{fmt.Errorf("DMA memory could not be taken back from the device: %w", cause)})
}

func errDomainLost(err error) error {
	return gpuerr.New(gpuerr.IO, "the domain is lost, and the memory is kept from reuse: %v", err)
}

// coded gives an error that has no code one, so that the driver may read it.
func coded(err error, doing string) error {
	if errors.As(err, new(*gpuerr.Error)) {
		return err
	}
	return gpuerr.New(gpuerr.IO, "%s: %v", doing, err)
}
