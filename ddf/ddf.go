// Package ddf defines the grants of one PCI function to its driver.
//
// A driver gets these four kinds of capability from the device-manager and
// nothing else: windows of memory BARs (DeviceMmio), bounded DMA memory of its
// own IOMMU domain (DMAPool), interrupt vectors (Interrupt), and an append-only
// audit log (HardwareAuditLog). They are interfaces and values; no system call
// is made here. ddf/fake implements them in ordinary memory, ddf/ddfrpc over
// the guarded link to the device-manager.
//
// Everything a grant hands out dies with the grant: when the manager revokes
// it, every method answers an error with code gpuerr.Revoked.
package ddf

import (
	"context"
	"time"

	"capgpu/iommu"
)

// IOVA is an address as the device sees it.
type IOVA = iommu.IOVA

// PageBytes is the granule of every DMA allocation and mapping.
const PageBytes = 4096

// GrantSet is all a driver holds for its function.
type GrantSet struct {
	Device     DeviceInfo
	Mmio       map[int]DeviceMmio // by BAR number
	DMA        DMAPool
	DMABytes   uint64      // LimitBytes of DMA, if that is known without asking; else 0
	Interrupts []Interrupt // by vector
	Audit      HardwareAuditLog
	Engines    Engines // nil: none
	// LaunchRecords says every how many launches of a session one is recorded in
	// Audit; 0 means none.
	LaunchRecords uint64
}

// DMALimit is how many bytes of DMA memory there may be.
func (g GrantSet) DMALimit() uint64 {
	if g.DMABytes > 0 {
		return g.DMABytes
	}
	return g.DMA.Usage().LimitBytes
}

// DeviceInfo names the function.
type DeviceInfo struct {
	Index      uint32 // as in listDevices
	Name       string // "mock0"
	PCIAddress string // "0000:00:01.0"; empty for the fake function
	VendorID   uint16
	DeviceID   uint16
	Epoch      uint64 // counts drivers of this function, from 1
	Fake       bool   // no hardware behind it
}

// DeviceMmio is one window of one memory BAR. Offsets are bytes from the start
// of the window, multiples of 4. Accesses are volatile and never torn.
type DeviceMmio interface {
	Size() uint64
	Read32(off uint64) (uint32, error)
	// Write32 fails with gpuerr.Denied on a read-only window.
	Write32(off uint64, v uint32) error
	// Ring makes one of the selected 32-bit writes that the grant names, also on
	// a window that is otherwise read-only. doorbell is its offset in the window.
	Ring(doorbell uint64, v uint32) error
	Close() error
}

// WindowSpec describes one window of one memory BAR.
type WindowSpec struct {
	Bar    uint32
	Offset uint64 // of the window in the BAR; a multiple of PageBytes
	Bytes  uint64
	// Writable lets the driver write all of it. A window of real hardware that is not
	// writable is reached by calls to the manager only, which knows the doorbells.
	Writable  bool
	Doorbells []uint64 // offsets in the window that Ring may write
}

// DMAPool hands out memory that the device can reach.
type DMAPool interface {
	// Alloc returns zeroed memory of the given size, rounded up to PageBytes.
	// It fails with gpuerr.Quota when the pool's limit would be exceeded.
	Alloc(ctx context.Context, bytes uint64) (DMABuffer, error)
	Usage() PoolUsage
}

// PoolUsage is a snapshot of a pool.
type PoolUsage struct {
	UsedBytes  uint64
	LimitBytes uint64
	Entries    uint64 // live IOVA mappings
}

// DMABuffer is memory both sides can reach until Free.
type DMABuffer interface {
	IOVA() IOVA
	Size() uint64
	// Generation tells this use of the IOVA range from earlier and later ones.
	Generation() uint64
	// Bytes is the driver's own mapping. It may be shared with an untrusted
	// client: read each word once. It is invalid after Free.
	Bytes() []byte
	// FD is the memfd (sealed SHRINK, GROW, SEAL) under the buffer, owned by the
	// buffer. Send it to a client to map; never close it.
	FD() int
	// Scrub makes pages [off, off+n) zero again and returns them to the host.
	// off and n are multiples of PageBytes.
	Scrub(off, n uint64) error
	// Free unmaps the IOVA, then scrubs, then returns the charge. Idempotent. When it
	// fails and FD is still there, so is the mapping; Free may be tried again.
	Free() error
}

// Interrupt is one vector.
type Interrupt interface {
	// Wait blocks for the next interrupt and returns how many were merged.
	Wait(ctx context.Context) (uint64, error)
	Mask() error
	Unmask() error
	// Ack rearms a level-triggered source after the device was serviced.
	Ack() error
}

// HardwareAuditLog is append-only.
type HardwareAuditLog interface {
	Append(kind, detail string) error
	Snapshot(from uint64, max int) ([]AuditRecord, error)
	Verify() (AuditHead, error)
}

// AuditRecord is one line of the log.
type AuditRecord struct {
	Index  uint64
	Time   time.Time
	Kind   string // "grant", "session.open", "buffer.create", ...
	Tenant string // empty for the manager's own acts
	Detail string
}

// AuditHead is a commitment to the first Size records.
type AuditHead struct {
	Size uint64
	Root [32]byte // RFC 6962 Merkle tree hash
}
