package manager

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// grants is all that the driver of one epoch holds, as the manager sees it. The
// driver may lie about everything else; what is here is charged before it exists
// and gone when revoke has returned.
//
//	open ──revoke──► revoked: nothing is handed out any more; memory is unmapped,
//	                 punched and closed, charges are back
type grants struct {
	info     ddf.DeviceInfo
	account  *ledger.Account // of this epoch
	audit    AuditLog
	function *fakeFunction
	fixed    []ledger.Receipt // of windows and vectors
	sessions *tally           // of this epoch
	journal  *journal         // of its memory
	shares   *auditShares     // of what it may have recorded
	log      *slog.Logger

	mu sync.Mutex
	// +checklocks:mu
	revoked bool
	// +checklocks:mu
	space *iovaSpace
	// +checklocks:mu
	generation uint64
	// +checklocks:mu
	live map[*dmaMemory]struct{}
}

// dmaMemory is one piece of memory that device and driver reach.
type dmaMemory struct {
	iova       ddf.IOVA
	bytes      uint64
	generation uint64
	memory     *shm.Memory

	bytesCharge, entryCharge ledger.Receipt

	recorded atomic.Bool // that it is mapped

	freeing sync.Once
	freeErr error // read after freeing
}

// newGrants makes what the policy grants a driver of this epoch. It owns the
// account from here on, also when it fails.
func newGrants(info ddf.DeviceInfo, account *ledger.Account, audit AuditLog, shares *auditShares, log *slog.Logger) (g *grants, err error) {
	g = &grants{info: info, account: account, audit: audit, shares: shares, log: log, sessions: newTally(), space: newIOVASpace(), live: map[*dmaMemory]struct{}{}}
	g.journal = newJournal(audit, log, g.tag())
	defer func() {
		if err != nil {
			g.releaseFixed()
			err = errors.Join(err, account.Close())
		}
	}()
	for _, c := range []struct {
		class  ledger.Class
		amount uint64
	}{{ledger.MMIOBytes, totalBytes(fakeWindows)}, {ledger.IRQVectors, fakeVectors}} {
		r, err := account.Reserve(c.class, c.amount)
		if err != nil {
			return nil, err
		}
		r.Commit()
		g.fixed = append(g.fixed, r)
	}
	g.function, err = newFakeFunction(fakeWindows, fakeVectors)
	return g, err
}

func totalBytes(windows []windowSpec) (total uint64) {
	for _, w := range windows {
		total += w.bytes
	}
	return total
}

func (g *grants) releaseFixed() {
	for i := range g.fixed {
		g.fixed[i].Release()
	}
	g.fixed = nil
}

// alloc charges, makes, records and maps memory, in that order.
func (g *grants) alloc(bytes uint64) (d *dmaMemory, err error) {
	if bytes == 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "bytes is 0; ask for at least one")
	}
	if bytes > math.MaxInt64-ddf.PageBytes {
		return nil, gpuerr.Refused(ledger.DeviceMemory.String(), bytes, g.account.Available(ledger.DeviceMemory))
	}
	d = &dmaMemory{bytes: (bytes + ddf.PageBytes - 1) &^ (ddf.PageBytes - 1)}
	if d.bytesCharge, err = g.account.Reserve(ledger.DeviceMemory, d.bytes); err != nil {
		return nil, err
	}
	if d.entryCharge, err = g.account.Reserve(ledger.IOVAEntries, 1); err != nil {
		d.bytesCharge.Release()
		return nil, err
	}
	if d.memory, err = shm.Create("capgpu-dma", d.bytes); err != nil {
		d.bytesCharge.Release()
		d.entryCharge.Release()
		return nil, err
	}
	if err := g.place(d); err != nil {
		err = errors.Join(err, d.memory.Close())
		d.bytesCharge.Release()
		d.entryCharge.Release()
		return nil, err
	}
	// Recorded before the driver learns of it: a grant without a record is none.
	if err := g.journal.mapped(d); err != nil {
		return nil, errors.Join(errNotRecorded(err), g.free(d))
	}
	d.recorded.Store(true)
	d.bytesCharge.Commit()
	d.entryCharge.Commit()
	return d, nil
}

// place gives the memory its address.
func (g *grants) place(d *dmaMemory) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked {
		return errGrantsRevoked
	}
	iova, ok := g.space.take(d.bytes)
	if !ok {
		return gpuerr.New(gpuerr.IO, "no free range of %d bytes is left in the device's address space", d.bytes)
	}
	g.generation++
	d.iova, d.generation = iova, g.generation
	g.live[d] = struct{}{}
	return nil
}

// free unmaps, scrubs, and returns the charge, in that order, whatever becomes of
// the record: an error says that the memory did not go, and a driver that gets one
// must not go on. Idempotent; every caller returns when it is done.
func (g *grants) free(d *dmaMemory) error {
	d.freeing.Do(func() {
		g.mu.Lock()
		g.space.give(d.iova)
		g.mu.Unlock()
		// Others may hold descriptors and mappings of the memory, so that closing
		// ours returns no page: only punching does.
		d.freeErr = errors.Join(d.memory.Punch(0, d.bytes), d.memory.Close())
		d.bytesCharge.Release()
		d.entryCharge.Release()
		if d.recorded.Load() {
			g.journal.unmapped(d)
		}
		// Only now: revoke waits for the frees that it finds here.
		g.mu.Lock()
		delete(g.live, d)
		g.mu.Unlock()
	})
	return d.freeErr
}

// usage is a snapshot of the pool.
func (g *grants) usage() ddf.PoolUsage {
	g.mu.Lock()
	entries := uint64(len(g.live))
	g.mu.Unlock()
	var u ddf.PoolUsage
	for _, e := range g.account.Snapshot() {
		if e.Class == ledger.DeviceMemory {
			u = ddf.PoolUsage{UsedBytes: e.Reserved + e.Used, LimitBytes: e.Limit, Entries: entries}
		}
	}
	return u
}

// mapped asks the (fake) IOMMU.
func (g *grants) mapped(iova ddf.IOVA, bytes uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.space.mapped(iova, bytes)
}

// revoke takes everything back and closes the account. The link to the driver
// must be down: no call of it may run, though memory that it dropped may still be
// on its way out. If one does run (callsRun), the windows and vectors that it may
// be using stay, with their charges; memory goes in any case. The error is a bug or
// a host that failed; all that could be taken back was.
func (g *grants) revoke(callsRun bool) (freed int, err error) {
	g.mu.Lock()
	g.revoked = true
	left := make([]*dmaMemory, 0, len(g.live))
	for d := range g.live {
		left = append(left, d)
	}
	g.mu.Unlock()
	var errs []error
	for _, d := range left {
		errs = append(errs, g.free(d))
	}
	g.journal.close()
	for _, gap := range g.shares.gaps() {
		g.recordGap(gap)
	}
	if callsRun {
		return len(left), errors.Join(errs...)
	}
	errs = append(errs, g.function.Close())
	g.releaseFixed()
	errs = append(errs, g.account.Close())
	return len(left), errors.Join(errs...)
}

// tag names the holder in audit records.
func (g *grants) tag() string { return fmt.Sprintf("%s epoch=%d", g.info.Name, g.info.Epoch) }

func errNotRecorded(err error) error {
	return gpuerr.New(gpuerr.IO, "the audit log cannot be written, so nothing is granted: %v", err)
}

var errGrantsRevoked = gpuerr.New(gpuerr.Revoked, "the device-manager took the grant back; the driver must exit")

// limitOf is an account's own limit of a class.
func limitOf(a *ledger.Account, class ledger.Class) uint64 {
	for _, e := range a.Snapshot() {
		if e.Class == class {
			return e.Limit
		}
	}
	return 0
}
