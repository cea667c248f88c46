package gpu

import (
	"context"
	"log/slog"
	"time"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpu/strikes"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// Config is everything a Device is made of. Zero durations and sizes take the
// defaults below.
type Config struct {
	Info    ddf.DeviceInfo
	Backend backend.Backend // owned by the Device from New on, also when New fails
	DMA     ddf.DMAPool
	Audit   ddf.HardwareAuditLog // nil: nothing is recorded
	// Settle returns when every IOMMU fault of the device that the kernel has recorded
	// until now was given to Device.Fault, and says for how long, by now, no fault can
	// have been left out of the record; gpuerr.Unimplemented where there is none, now
	// or ever. With it, no work of a device with Info.DMA is told to be ok before its
	// faults would be known. nil: faults count when they come.
	Settle func(ctx context.Context) (complete time.Duration, err error)
	// LaunchRecords: every how many launches of a session one is recorded; 0: none.
	LaunchRecords uint64
	Limits        ledger.Limits // of the whole device; the zero value: no limits

	HangBound       time.Duration // from a missed deadline to the typed outcome
	DefaultDeadline time.Duration // of a submission that names none
	MaxDeadline     time.Duration // of any submission, where the tenant's policy sets none
	MaxBufferBytes  uint64
	MaxQueueEntries uint32
	MaxArgBytes     uint32
	Strikes         StrikePolicy

	// Rings makes the rings of queues; nil: in memory that is shared with a client's
	// process. With it no queue looks at its ring before it sleeps, so that a Device
	// works on virtual time (package ring/ringtest).
	Rings func(ring.Config) (*ring.Server, error)

	Log *slog.Logger // nil: discarded

	newRing func(ring.Config) (serverRing, error) // Rings of this package's tests
}

// StrikePolicy says when a tenant that keeps hanging the device is banned (ban.go).
type StrikePolicy = strikes.Policy

// The defaults for zero fields of a Config.
const (
	DefaultHangBound       = 2 * time.Second
	DefaultDeadline        = 2 * time.Second
	DefaultMaxDeadline     = 10 * time.Second
	DefaultMaxProgress     = time.Minute // DefaultMaxDeadline of a backend.Progresser
	DefaultMaxBufferBytes  = 1 << 32
	DefaultMaxQueueEntries = 4096
	DefaultMaxArgBytes     = 16 << 20
	DefaultStrikeLimit     = 3
	DefaultStrikeWindow    = time.Minute
	DefaultBan             = 10 * time.Second
)

// Attach is what the device-manager says of a new session.
type Attach struct {
	ID           uint64 // by which the device-manager knows the session; for the records
	Tenant       string
	TenantLimits ledger.Limits // of all sessions of the tenant; the newest stand
	Limits       ledger.Limits // of this session
	Facet        Facet
	Weight       uint32        // of the tenant in the fair share; 0 means 1
	MaxDeadline  time.Duration // 0: the device's
	Programs     []string      // built-in programs it may open; empty: all
}

// Policy weakens a session, see Session.Restrict.
type Policy struct {
	Facet       Facet
	MaxDeadline time.Duration // 0: the parent's
	Limits      ledger.Limits
	Programs    []string // names and digests; empty: the parent's
	// Check has programs run slowly and watched: data races, reads of uninitialised
	// shared memory and divergent barriers trap, too. Sessions below inherit it.
	Check bool
}

// Facet is the set of methods that a session has.
type Facet uint8

const (
	FacetMemory  Facet = iota // memory, fences, copies
	FacetProgram              // adds running named programs
	FacetFull                 // adds loading programs
	numFacets
)

// String is the name used in status and audit records.
func (f Facet) String() string {
	switch f {
	case FacetMemory:
		return "memory"
	case FacetProgram:
		return "program"
	case FacetFull:
		return "full"
	}
	return "unknown"
}

// Handle names an object of one session. Zero is no handle.
type Handle = handles.Handle

// Usage says what a buffer is for. Zero means UsageStorage.
type Usage uint32

const (
	UsageStorage  Usage = 1 << iota // programs read and write it
	UsageUpload                     // the client writes it
	UsageReadback                   // the client reads it
	// UsageDevice keeps the buffer from the client: it lies in the device's own memory, where
	// that has some, and its bytes come and go by copies.
	UsageDevice

	usageAll = UsageStorage | UsageUpload | UsageReadback | UsageDevice
)

// BufferInfo is what a client needs to map a buffer.
type BufferInfo struct {
	Handle Handle
	MemOff uint64 // where the buffer starts in the memfd of BufferFD, page-aligned
	MemLen uint64 // bytes of the buffer: what was asked, rounded up to pages
}

// FenceState is where a fence stands.
type FenceState struct {
	Reached  uint64          // the last point that has ended
	Promised uint64          // the last point that was queued
	Outcome  outcome.Outcome // of the point asked for, or of the last that ended
}

// QueueInfo is what a client needs to attach to a queue's ring.
type QueueInfo struct {
	Handle   Handle
	Entries  uint32
	ArgBytes uint32
}

// Description is what a session may do and the bounds that the device promises.
type Description struct {
	Device          ddf.DeviceInfo
	Backend         string
	Deterministic   bool // see backend.Info
	MemoryBytes     uint64
	LocalBytes      uint64 // see backend.Info
	HangBound       time.Duration
	RevokeBound     time.Duration // from a close to its answer: work that runs is ended as if it hung
	MaxDeadline     time.Duration
	MaxBufferBytes  uint64
	Limits          backend.Limits
	MaxQueueEntries uint32
	MaxArgBytes     uint32
	Facet           Facet
	Programs        []string        // sorted
	Poisoned        outcome.Outcome // what poisoned the session; pending: nothing
	Checked         bool            // see Policy.Check
}
