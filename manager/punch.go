package manager

import (
	"errors"
	"time"

	"capgpu/internal/crashpoint"
	"capgpu/internal/shm"
)

// Whoever has a descriptor of DMA memory can hold the lock of its inode for as long
// as it likes: a write(2) from a page whose fault nobody answers (userfaultfd, FUSE)
// takes it first (generic_file_write_iter, Linux 6.12). A punch waits for that lock,
// and no signal ends the wait. So nothing here waits for a punch longer than this:
// the memory is written over instead, which needs no lock, and stays charged until
// its pages are back.
const punchGrace = time.Second

// maxPunches bounds the threads that can be stuck so, two for each at most (reclaim.go): the
// Go runtime ends a process with 10,000 threads.
const maxPunches = 256

// punches has a place for each that runs, in the whole process.
var punches = make(chan struct{}, maxPunches)

// punch gives the pages of d back, in its own time.
func (g *grants) punch(d *dmaMemory) (done <-chan error) {
	result := make(chan error, 1)
	go func() {
		punches <- struct{}{}
		err := g.punchOut(d.memory, d.bytes)
		<-punches
		result <- err
	}()
	return result
}

// punchInBackground is punchOut's: as long as a driver lives its work goes before. When it is dead
// the next one waits for this.
func (g *grants) punchInBackground(m *shm.Memory, bytes uint64) error {
	return punchInBackground(m, bytes, g.zeroPool.closing)
}

// dispose scrubs memory that the device does not reach, closes it and returns its
// charges. Others may hold descriptors and mappings of it, so that closing ours
// returns no page: only punching does. Memory that somebody keeps from being punched
// is zero when dispose returns, and lingers.
func (g *grants) dispose(d *dmaMemory) error {
	if d.memory == nil {
		return d.close()
	}

	done := g.punch(d)
	timer := time.NewTimer(g.punchPatience())
	defer timer.Stop()
	select {
	case err := <-done:
		crashpoint.Here("manager.dma.punched")
		return errors.Join(err, d.close())
	case <-timer.C:
	}

	if addr, faulted := shm.Guard(func() { clear(d.host) }); faulted {
		g.log.Error("memory that cannot be punched cannot be written over either", "addr", addr, "iova", uint64(d.iova))
	}

	g.log.Warn("somebody who has this memory holds a lock of it: it stays charged until then", "iova", uint64(d.iova), "bytes", d.bytes)
	g.mu.Lock()
	g.lingering++
	g.mu.Unlock()
	go g.runLinger(d, done)
	return nil
}

// punchPatience is how long a punch is waited for: the more memory is held already,
// the less, so that all of it together takes no more than two graces.
func (g *grants) punchPatience() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return punchGrace >> min(g.lingering, 10)
}

// runLinger waits for a punch as long as it takes, and closes the account if it was
// the last thing in it. It punches once more: pages that were punched already are there
// again since dispose wrote over them.
func (g *grants) runLinger(d *dmaMemory, done <-chan error) {
	err := errors.Join(<-done, <-g.punch(d), d.close())
	g.mu.Lock()
	g.lingering--
	last := g.lingering == 0 && g.closeLater
	g.mu.Unlock()
	if last {
		err = errors.Join(err, g.account.Close())
	}
	if err != nil {
		g.log.Error("give memory back that somebody held", "iova", uint64(d.iova), "err", err)
	}
}

// closeAccount closes the account of the epoch, or has the last that lingers do so.
func (g *grants) closeAccount() (lingering int, err error) {
	g.mu.Lock()
	lingering = g.lingering
	g.closeLater = lingering > 0
	g.mu.Unlock()
	if lingering > 0 {
		return lingering, nil
	}
	return 0, g.account.Close()
}

// close ends the manager's hold of memory and returns its charges.
func (d *dmaMemory) close() (err error) {
	if d.memory != nil {
		err = errors.Join(shm.Unmap(d.host), d.memory.Close())
	}
	d.bytesCharge.Release()
	d.entryCharge.Release()
	return err
}
