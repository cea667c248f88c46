package manager

import (
	"errors"
	"time"

	"capgpu/internal/crashpoint"
	"capgpu/internal/shm"
	"capgpu/internal/yield"
)

// A process with a descriptor of DMA memory can hold the lock of its inode for as long as it
// likes: a write(2) takes the lock first (generic_file_write_iter, Linux 6.12) and then reads
// from a page, and the process may leave that page's fault unanswered (userfaultfd, FUSE). A
// punch waits for the lock, and no signal ends the wait.
//
// So no caller waits for a punch longer than punchGrace. After that the memory is overwritten
// instead, which needs no lock. It stays charged until its pages are free.
const punchGrace = time.Second

// maxPunches bounds the stuck threads, at most two for each punch (reclaim.go): the Go
// runtime ends a process with 10,000 threads.
const maxPunches = 256

// punches is a semaphore of all punches of the process.
var punches = make(chan struct{}, maxPunches)

// punch starts to free the pages of d.
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

// punchInBackground frees pages while the driver lives: the driver's work goes first. When
// the driver is dead, the next one waits for the pages, and they are freed in the foreground.
func (g *grants) punchInBackground(m *shm.Memory, bytes uint64) error {
	return punchInBackground(m, bytes, g.zeroPool.closing)
}

// dispose scrubs memory that the device cannot reach, closes it and returns its charges.
// Other processes may hold descriptors and mappings of it, so only a punch frees its pages; a
// close does not. If a process blocks the punch, the memory is zero when dispose returns, and
// stays charged (lingers) until the punch ends.
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

	g.log.Warn("a process that shares this memory holds its lock: it stays charged until the lock is free", "iova", uint64(d.iova), "bytes", d.bytes)
	g.lent.mu.Lock()
	g.lent.lingering++
	g.lent.mu.Unlock()
	go g.runLinger(d, done)
	return nil
}

// punchPatience is how long dispose waits for a punch. It halves with each memory that
// lingers, so that all waits together are at most two graces.
func (g *grants) punchPatience() time.Duration {
	g.lent.mu.Lock()
	defer g.lent.mu.Unlock()
	return punchGrace >> min(g.lent.lingering, 10)
}

// runLinger waits for a punch without a limit. It punches once more, because dispose has
// written to pages that were free already. With the last memory that lingers, it closes the
// account.
func (g *grants) runLinger(d *dmaMemory, done <-chan error) {
	err := errors.Join(<-done, <-g.punch(d), d.close())
	g.lent.mu.Lock()
	g.lent.lingering--
	last := g.lent.lingering == 0 && g.lent.closeLater
	g.lent.mu.Unlock()
	if last {
		err = errors.Join(err, g.account.Close())
	}
	if err != nil {
		g.log.Error("free memory that another process had locked", "iova", uint64(d.iova), "err", err)
	}
}

// closeAccount closes the account of the epoch, or leaves that to the last memory that
// lingers.
func (g *grants) closeAccount() (lingering int, err error) {
	g.lent.mu.Lock()
	lingering = g.lent.lingering
	g.lent.closeLater = lingering > 0
	g.lent.mu.Unlock()
	if lingering > 0 {
		return lingering, nil
	}
	return 0, g.account.Close()
}

// close closes the manager's mapping and descriptor, and returns the charges.
func (d *dmaMemory) close() (err error) {
	if d.memory != nil {
		err = errors.Join(shm.Unmap(d.host), d.memory.Close())
	}
	d.bytesCharge.Release()
	d.entryCharge.Release()
	return err
}

// pagesPiece is how many bytes of pages are made or freed before a thread yields: some tens
// of microseconds of work.
const pagesPiece = 256 << 10

// punchYields is for how long a punch yields to others. Near punchGrace the punch would count
// as blocked by a process.
const punchYields = punchGrace / 4

// punchOut frees the pages of memory piece by piece.
func punchOut(m *shm.Memory, bytes uint64) error { return punchPieces(m, bytes, yieldSparingly) }

var yieldSparingly = yield.Sparingly(shm.Yield)

func punchPieces(m *shm.Memory, bytes uint64, yieldFirst func()) error {
	if bytes == 0 {
		return nil
	}
	start, p := time.Now(), newPunching(m, bytes)
	p.run(func() {
		if time.Since(start) < punchYields {
			yieldFirst()
		}
	})
	return p.wait()
}
