package manager

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"capgpu/audit/dma"
	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/shm"
	"capgpu/internal/yield"
	"capgpu/iommu"
	"capgpu/ledger"
)

// dmaMemory is one piece of memory that the device and the driver can reach.
//
//	alloc ──► mapped ──free──► unmapped, punched, closed, charges back (punch.go)
//	                    │
//	                    └ the unmap failed, or the device could not be stopped ──► kept
//
// Kept memory stays charged, open and mapped here until the function is closed: its pages go
// to no other process while the device may write to them.
type dmaMemory struct {
	iova       ddf.IOVA
	bytes      uint64
	generation uint64
	memory     *shm.Memory
	host       []byte // the manager's own mapping, which the domain maps

	bytesCharge, entryCharge ledger.Receipt

	links    dmaLinks    // guarded by lentMemory.mu
	holder   *holder     // the driver that may free it; guarded by lentMemory.mu
	going    bool        // it is being freed or was dropped, and passes to no successor; guarded by lentMemory.mu
	recorded atomic.Bool // its mapping is in the audit log
	sum      dma.Sum     // its part in the log's running sum; set before recorded
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
	yield.Step()
	if err := g.mapMemory(d); err != nil {
		if !d.isKept() {
			err = errors.Join(err, g.dispose(d))
		}
		return nil, err
	}

	// Recorded before the driver learns of it: no grant without a record.
	crashpoint.Here("manager.dma.mapped")
	yield.Step()
	if err := g.logs.journal.mapped(d); err != nil {
		return nil, errors.Join(errNotRecorded(err), g.free(d))
	}

	crashpoint.Here("manager.dma.recorded")
	yield.Step()
	d.recorded.Store(true)
	d.bytesCharge.Commit()
	d.entryCharge.Commit()
	return d, nil
}

// charge charges bytes. If there is too little room, spare memory is freed first.
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

// dmaName is the name of memory in /proc/PID/maps; see also zeroPoolName.
const dmaName = "capgpu-dma"

// create makes a memory file with the pages that the policy asks for.
func (g *grants) create(name string, bytes uint64) (*shm.Memory, error) {
	if !g.hugePages.allowed {
		return shm.Create(name, bytes)
	}
	m, err := shm.CreateHuge(name, bytes)
	if err == nil && m.Granule() == shm.PageBytes && bytes%shm.HugeBytes == 0 {
		g.hugePages.warned.Do(func() {
			g.log.Warn("too few huge pages are free, so memory is of ordinary ones: raise vm.nr_hugepages (told once for each driver)", "bytes", bytes)
		})
	}
	return m, err
}

// mapMemory takes an address for the memory and maps it for the device.
func (g *grants) mapMemory(d *dmaMemory) error {
	if err := g.place(d); err != nil {
		return err
	}

	// No lock is held, because pinning pages takes time.
	if err := g.function.Domain().Map(d.iova, d.host, iommu.ReadWrite); err != nil {
		if lost := g.function.Domain().Lost(); lost != nil {
			g.keep(d, lost)
			return errDomainLost(lost)
		}
		g.giveBack(d.iova)
		return coded(err, "map DMA memory for the device")
	}

	g.lent.mu.Lock()
	if !g.lent.revoked {
		g.lent.live.add(d)
		g.lent.mu.Unlock()
		return nil
	}
	g.lent.mu.Unlock()

	// revoke ran meanwhile and did not see this memory.
	if err := g.function.Domain().Unmap(d.iova, d.bytes); err != nil {
		g.keep(d, err)
		return errDomainLost(err)
	}

	g.giveBack(d.iova)
	g.logs.journal.undone(d)
	return errGrantsRevoked
}

// place takes an address in the device's address space.
func (g *grants) place(d *dmaMemory) error {
	g.lent.mu.Lock()
	defer g.lent.mu.Unlock()
	if g.lent.revoked {
		return errGrantsRevoked
	}
	iova, ok := g.lent.space.Take(d.bytes)
	if !ok {
		return gpuerr.New(gpuerr.IO, "no free range of %d bytes is left in the device's address space", d.bytes)
	}
	g.lent.generation++
	d.iova, d.generation = iova, g.lent.generation
	return nil
}

func (g *grants) giveBack(iova ddf.IOVA) {
	g.lent.mu.Lock()
	defer g.lent.mu.Unlock()
	g.lent.space.Give(iova)
}

// free unmaps and scrubs memory and returns the charge, in that order, whether or not the
// record succeeds. An error means that the memory is not free, and the driver that gets it
// must end. It is idempotent; every caller returns when it is done.
func (g *grants) free(d *dmaMemory) error {
	d.freeing.Do(func() {
		if err := g.function.Domain().Unmap(d.iova, d.bytes); err != nil {
			d.freeErr = errDomainLost(err)
			g.keep(d, err)
			return
		}
		g.giveBack(d.iova)
		crashpoint.Here("manager.dma.unmapped")
		yield.Step()
		d.freeErr = g.dispose(d)
		crashpoint.Here("manager.dma.disposed")
		yield.Step()
		if d.recorded.Load() {
			g.logs.journal.unmapped(d)
		} else {
			g.logs.journal.undone(d)
		}
		// Last, because revoke waits for the frees that it finds in the list.
		g.forget(d)
	})
	return d.freeErr
}

// drop notes that the driver has released memory without a Free. A dying driver looks the
// same, and then the function must be stopped before memory is unmapped. So dropped memory
// waits for the next request of a live driver, or for revoke.
func (g *grants) drop(d *dmaMemory) {
	g.lent.mu.Lock()
	defer g.lent.mu.Unlock()
	if g.lent.live.has(d) {
		g.lent.dropped = append(g.lent.dropped, d)
	}
}

// freeDropped is called at requests of a live driver.
func (g *grants) freeDropped() {
	g.lent.mu.Lock()
	dropped := g.lent.dropped
	g.lent.dropped = nil
	g.lent.mu.Unlock()
	for _, d := range dropped {
		if err := g.free(d); err != nil && !d.isKept() {
			g.log.Error("free DMA memory that its driver dropped", "err", err)
		}
	}
}

func (g *grants) forget(d *dmaMemory) {
	g.lent.mu.Lock()
	defer g.lent.mu.Unlock()
	g.lent.live.remove(d)
}

// abandon takes memory from a function that could not be stopped. It tries to unmap it from
// the IOMMU, and keeps the pages in any case, because the function's state is not known.
func (d *dmaMemory) abandon(g *grants, running error) {
	d.freeing.Do(func() {
		d.freeErr = errDomainLost(errors.Join(running, g.function.Domain().Unmap(d.iova, d.bytes)))
		g.keep(d, running)
	})
}

// keep keeps memory until the function is closed, and ends the epoch.
func (g *grants) keep(d *dmaMemory, cause error) {
	d.kept.Store(true)
	d.bytesCharge.Commit()
	d.entryCharge.Commit()
	g.lent.mu.Lock()
	g.lent.live.remove(d)
	g.lent.kept = append(g.lent.kept, d)
	g.lent.mu.Unlock()
	detail := fmt.Sprintf("%s iova=%#x bytes=%d generation=%d cause=%q", g.tag(), uint64(d.iova), d.bytes, d.generation, clipped(cause.Error()))
	if _, err := g.logs.drivers.Append("dma.kept", "", detail); err != nil {
		g.log.Warn("memory is kept from reuse, which no record tells of", "iova", uint64(d.iova), "bytes", d.bytes, "cause", cause, "err", err)
	}
	g.failure.report(&wedgedError{fmt.Errorf("DMA memory could not be taken back from the device: %w", cause)})
}

func errDomainLost(err error) error {
	return gpuerr.New(gpuerr.IO, "the domain is lost, and the memory is kept from reuse: %v", err)
}

// coded gives an error without a code one, so that the driver may read it.
func coded(err error, doing string) error {
	if errors.As(err, new(*gpuerr.Error)) {
		return err
	}
	return gpuerr.New(gpuerr.IO, "%s: %v", doing, err)
}
