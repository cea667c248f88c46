package manager

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/shm"
	"capgpu/iommu"
	"capgpu/ledger"
)

// grants is the manager's record of everything that the driver of one epoch holds. The driver
// may lie about the rest. Each grant is charged before it exists, and gone when revoke has
// returned.
//
//	open ──revoke──► revoked: no further grant; memory is unmapped, punched and closed,
//	                 charges are back
//
// Memory that the device may still reach is the exception: it is kept with its charge, and
// its pages are not reused (dma.go).
type grants struct {
	info     ddf.DeviceInfo
	account  *ledger.Account // of this epoch
	function Function
	windows  []*window
	vectors  []*vector
	fixed    []ledger.Receipt // of windows and vectors
	sessions *openSessions    // of this epoch
	log      *slog.Logger
	failure  *epochFailure // ends the epoch
	zeroPool *zeroPool     // memory for later requests
	punchOut func(m *shm.Memory, bytes uint64) error

	logs struct {
		device  AuditLog
		drivers AuditLog
		journal *journal     // of this driver's memory
		shares  *auditShares // bounds its records about tenants
	}

	hugePages struct {
		allowed bool
		warned  sync.Once
	}

	lent lentMemory
}

// lentMemory is the DMA memory of the grants.
type lentMemory struct {
	mu sync.Mutex
	// +checklocks:mu
	revoked bool
	// +checklocks:mu
	space *iommu.Space // of the function; no driver of another epoch lives
	// +checklocks:mu
	generation uint64
	// +checklocks:mu
	live dmaList
	// +checklocks:mu
	dropped []*dmaMemory // of live: the driver released it without a Free
	// +checklocks:mu
	kept []*dmaMemory // the device may still reach it
	// +checklocks:mu
	lingering int // pieces of memory that a process keeps from being punched
	// +checklocks:mu
	closeLater bool // the last of them closes the account
}

// grantsOf holds the parts that grants are made of.
type grantsOf struct {
	info     ddf.DeviceInfo
	function Function
	space    *iommu.Space
	account  *ledger.Account // of the epoch
	audit    AuditLog        // of the device
	own      AuditLog        // of its drivers
	shares   *auditShares
	huge     bool
	log      *slog.Logger
}

// newGrants makes the grants that the policy gives a driver of this epoch. It takes ownership
// of the account, also when it fails.
func newGrants(of grantsOf) (g *grants, err error) {
	g = &grants{
		info: of.info, account: of.account, function: of.function, log: of.log,
		windows: grantedWindows(of.function), vectors: grantedVectors(of.function),
		sessions: newOpenSessions(), failure: newEpochFailure(), lent: lentMemory{space: of.space},
	}
	g.logs.device, g.logs.drivers, g.logs.shares = of.audit, of.own, of.shares
	g.hugePages.allowed = of.huge
	g.punchOut = g.punchInBackground
	g.logs.journal = newJournal(of.own, of.log, g.tag())
	g.zeroPool = newZeroPool(of.account, g.create)
	defer func() {
		if err != nil {
			g.releaseFixed()
			err = errors.Join(err, of.account.Close())
		}
	}()

	for _, c := range []struct {
		class  ledger.Class
		amount uint64
	}{{ledger.MMIOBytes, totalBytes(g.windows)}, {ledger.IRQVectors, uint64(len(g.vectors))}} {
		r, err := of.account.Reserve(c.class, c.amount)
		if err != nil {
			return nil, err
		}
		r.Commit()
		crashpoint.Here("manager.grants.half")
		g.fixed = append(g.fixed, r)
	}

	return g, nil
}

func totalBytes(windows []*window) (total uint64) {
	for _, w := range windows {
		total += w.spec.Bytes
	}
	return total
}

func (g *grants) releaseFixed() {
	for i := range g.fixed {
		g.fixed[i].Release()
	}
	g.fixed = nil
}

// usage returns a snapshot of the pool.
func (g *grants) usage() ddf.PoolUsage {
	g.lent.mu.Lock()
	entries := uint64(g.lent.live.n)
	g.lent.mu.Unlock()
	u := ddf.PoolUsage{Entries: entries}
	u.UsedBytes = g.zeroPool.excluding(func() uint64 {
		for _, e := range g.account.Snapshot() {
			if e.Class == ledger.DeviceMemory {
				u.LimitBytes = e.Limit
				return e.Reserved + e.Used
			}
		}
		return 0
	})
	return u
}

// revoked is the result of revoke.
type revoked struct {
	freed int // mappings that the driver had left
	kept  int // of these and earlier ones, still in reach of the device
	held  int // pieces that a process keeps from being freed
	lost  error
	err   error // a bug, or a host that failed
}

// revoke takes everything back and closes the account. The link to the driver must be down.
// If a call of it still runs (callsRun), the charges of the windows and vectors that it may
// be using stay; memory goes in any case. A function that could not be stopped (running) may
// still write to its memory, which is unmapped but kept.
func (g *grants) revoke(callsRun bool, running error) (r revoked) {
	g.lent.mu.Lock()
	g.lent.revoked = true
	left := slices.Collect(g.lent.live.all())
	g.lent.mu.Unlock()
	g.zeroPool.close()
	var errs []error
	for _, d := range left {
		if running != nil {
			d.abandon(g, running)
		} else if err := g.free(d); !d.isKept() {
			errs = append(errs, err)
		}
	}

	r.freed = len(left)
	g.logs.journal.close()
	g.lent.mu.Lock()
	r.kept = len(g.lent.kept)
	g.lent.mu.Unlock()
	r.lost = g.function.Domain().Lost()
	if callsRun {
		r.err = errors.Join(errs...)
		return r
	}

	g.releaseFixed()
	if r.kept == 0 {
		held, err := g.closeAccount()
		r.held = held
		errs = append(errs, err)
	}

	r.err = errors.Join(errs...)
	return r
}

// salvage frees the kept memory once the function is closed and reaches no memory.
func (g *grants) salvage() error {
	g.lent.mu.Lock()
	kept := g.lent.kept
	g.lent.kept = nil
	g.lent.mu.Unlock()
	var errs []error
	for _, d := range kept {
		errs = append(errs, g.dispose(d))
	}
	_, err := g.closeAccount()
	return errors.Join(append(errs, err)...)
}

// tag names the holder in audit records.
func (g *grants) tag() string { return fmt.Sprintf("%s epoch=%d", g.info.Name, g.info.Epoch) }

func errNotRecorded(err error) error {
	return gpuerr.New(gpuerr.IO, "the audit log cannot be written, so nothing is granted: %v", err)
}

var errGrantsRevoked = gpuerr.New(gpuerr.Revoked, "the device-manager took the grant back; the driver must exit")

// limitOf returns an account's own limit of a class.
func limitOf(a *ledger.Account, class ledger.Class) uint64 {
	for _, e := range a.Snapshot() {
		if e.Class == class {
			return e.Limit
		}
	}
	return 0
}

// checkBytes refuses sizes that no pool grants.
func (g *grants) checkBytes(bytes uint64) error {
	switch {
	case bytes == 0:
		return gpuerr.New(gpuerr.Invalid, "bytes is 0; ask for at least one")
	case bytes > math.MaxInt64-ddf.PageBytes:
		return gpuerr.Refused(ledger.DeviceMemory.String(), bytes, g.account.Available(ledger.DeviceMemory))
	}
	return nil
}
