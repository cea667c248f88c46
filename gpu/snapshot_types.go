package gpu

import (
	"time"

	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/gpu/strikes"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// SnapshotVersion is that of Snapshot. A successor takes no other: it grows with every change
// of what a field means.
const SnapshotVersion = 8

// Snapshot is all that a device has for its tenants, as a successor in another process takes
// it over: everything but what lies in shared memory, and the descriptors, which travel
// beside it (three for each queue, in order). Bytes of a client are in it only where the
// core had copied them out: entries that were taken and not begun, recordings, bundles.
//
// It is the word of the driver that made it, and checked like a stranger's: Restore takes
// none that does not agree with itself and with the memory that the pool has lent.
type Snapshot struct {
	Version uint32
	Device  string
	Epoch   uint64
	Backend string

	Uptime      time.Duration
	LastSession uint64
	Resets      uint64
	Strays      uint64
	Faults      uint64
	Spent       []Spent // by the device itself, and by tenants that are gone
	Tenants     []TenantSnapshot
	Branches    []BranchSnapshot
	Sessions    []SessionSnapshot // by id: parents before children
}

// Spent is what an account has used of a class that never comes back.
type Spent struct {
	Class  ledger.Class
	Amount uint64
}

// TenantSnapshot is one tenant.
type TenantSnapshot struct {
	Name        string
	Limits      ledger.Limits
	Weight      uint32
	MaxDeadline time.Duration // of a submission, as the policy has it now; 0: as each session has it
	Spent       []Spent
	Strikes     strikes.Snapshot
	BannedUntil *time.Time `json:",omitempty"`
}

// BranchSnapshot is one restricted session with all below it, as bans know it.
type BranchSnapshot struct {
	Session uint64 // the first of it
	Strikes strikes.Snapshot
	Banned  bool
}

// SessionSnapshot is one session.
type SessionSnapshot struct {
	ID, Parent, Attach uint64
	Tenant             string
	Branch             uint64 // 0: it is in none
	Limits             ledger.Limits
	Age                time.Duration
	Spent              []Spent
	Poison             outcome.Outcome // pending: none
	Trapped            bool            // its context on the device

	RightsSnapshot
	CountsSnapshot
	handles.Snapshot

	Chunks, DeviceChunks []heap.ChunkSnapshot

	Buffers []BufferSnapshot
	Fences  []FenceSnapshot
	Loaded  []ProgramSnapshot // before those opened from them
	Lists   []ListSnapshot
	Queues  []QueueSnapshot
}

// RightsSnapshot is what a session may do.
type RightsSnapshot struct {
	Facet         Facet
	Deadline      time.Duration
	Fair          time.Duration
	Longest       time.Duration
	Programs      []string // nil: all
	Listed, Check bool
}

// CountsSnapshot is what a session has counted.
type CountsSnapshot struct {
	Launches uint64
	Strikes  uint64
	Traps    uint64
	Ended    []uint64
}

// BufferSnapshot is one buffer.
type BufferSnapshot struct {
	Handle Handle
	Usage  Usage
	Bytes  uint64
	Memory heap.ExtentSnapshot // of Chunks or, of UsageDevice, of DeviceChunks
}

// PointSnapshot is one point of a fence.
type PointSnapshot struct {
	Value uint64
	Ended bool
	How   outcome.Outcome
}

// FenceSnapshot is one fence.
type FenceSnapshot struct {
	Handle                     Handle
	Initial, Reached, Promised uint64
	Open                       []PointSnapshot // promised and not reached
	Past                       []PointSnapshot // the last reached, oldest first
	PastCount                  uint64
	Forgotten                  PointSnapshot
}

// ProgramSnapshot is one program.
type ProgramSnapshot struct {
	Handle        Handle
	Name          string // of a built-in one
	Bundle        []byte // of a loaded one
	SourceSession uint64 // of one that was opened by its digest
	Source        Handle
}

// ListSnapshot is one list. One without a recording is dead: what it was made of is closed.
type ListSnapshot struct {
	Handle   Handle
	Entries  uint32
	ArgBytes uint32
	Recorded []byte
	Frames   int // copies for patches, which are charged
}

// TakenSnapshot is an entry that was taken and not begun.
type TakenSnapshot struct {
	Words [8]uint64
	Args  []uint64
	Code  gpuerr.Code
}

// WaitSnapshot is the wait that holds a queue.
type WaitSnapshot struct {
	UserData uint64 // of its entry
	Fence    Handle
	Value    uint64
	// OrderOnly: it goes on however the point ended.
	OrderOnly bool `json:",omitempty"`
}

// QueueSnapshot is one queue.
type QueueSnapshot struct {
	Handle   Handle
	Ring     ring.State
	Group    outcome.Outcome
	Skipping bool
	Deaf     bool
	Discard  int
	Doomed   uint64        // work before this position of the ring depends on failed work
	Wait     *WaitSnapshot `json:",omitempty"`
	Left     []TakenSnapshot
}
