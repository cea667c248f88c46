package gpu

import (
	"time"

	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// ImageVersion is that of Image. A successor takes no other: it grows with every change
// of what a field means.
const ImageVersion = 6

// Image is all that a device has for its tenants, as a successor in another process takes
// it over: everything but what lies in shared memory, and the descriptors, which travel
// beside it (three for each queue, in order). Bytes of a client are in it only where the
// core had copied them out: entries that were taken and not begun, recordings, bundles.
//
// It is the word of the driver that made it, and checked like a stranger's: Import takes
// none that does not agree with itself and with the memory that the pool has lent.
type Image struct {
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
	Tenants     []TenantImage
	Branches    []BranchImage
	Sessions    []SessionImage // by id: parents before children
}

// Spent is what an account has used of a class that never comes back.
type Spent struct {
	Class  ledger.Class
	Amount uint64
}

// StrikesImage is the strikes that still count, oldest first, and how many there were.
type StrikesImage struct {
	Recent []time.Time `json:",omitempty"`
	Count  uint64
}

// TenantImage is one tenant.
type TenantImage struct {
	Name        string
	Limits      ledger.Limits
	Weight      uint32
	MaxDeadline time.Duration // of a submission, as the policy has it now; 0: as each session has it
	Spent       []Spent
	Strikes     StrikesImage
	BannedUntil *time.Time `json:",omitempty"`
}

// BranchImage is one restricted session with all below it, as bans know it.
type BranchImage struct {
	Session uint64 // the first of it
	Strikes StrikesImage
	Banned  bool
}

// SessionImage is one session.
type SessionImage struct {
	ID, Parent, Attach uint64
	Tenant             string
	Branch             uint64 // 0: it is in none
	Limits             ledger.Limits
	Age                time.Duration
	Spent              []Spent
	Poison             outcome.Outcome // pending: none
	Trapped            bool            // its context on the device

	RightsImage
	CountsImage
	HandlesImage

	Chunks  []ChunkImage
	Buffers []BufferImage
	Fences  []FenceImage
	Loaded  []ProgramImage // before those opened from them
	Lists   []ListImage
	Queues  []QueueImage
}

// RightsImage is what a session may do.
type RightsImage struct {
	Facet         Facet
	Deadline      time.Duration
	Fair          time.Duration
	Longest       time.Duration
	Programs      []string // nil: all
	Listed, Check bool
}

// CountsImage is what a session has counted.
type CountsImage struct {
	Launches uint64
	Strikes  uint64
	Traps    uint64
	Ended    []uint64
}

// HandlesImage is the slots of a session's handles.
type HandlesImage struct {
	FirstGeneration uint32
	Generations     []uint32
	FreeSlots       []uint32
}

// ChunkImage is one piece of DMA memory from which buffers are cut.
type ChunkImage struct {
	IOVA       uint64
	Generation uint64
	Bytes      uint64
}

// BufferImage is one buffer.
type BufferImage struct {
	Handle     Handle
	Usage      Usage
	Bytes      uint64
	Chunk      int    // of Chunks; -1: memory of its own
	Off        uint64 // in the chunk
	IOVA       uint64 // of its own memory
	Generation uint64
}

// PointImage is one point of a fence.
type PointImage struct {
	Value uint64
	Ended bool
	How   outcome.Outcome
}

// FenceImage is one fence.
type FenceImage struct {
	Handle                     Handle
	Initial, Reached, Promised uint64
	Open                       []PointImage // promised and not reached
	Past                       []PointImage // the last reached, oldest first
	PastCount                  uint64
	Forgotten                  PointImage
}

// ProgramImage is one program.
type ProgramImage struct {
	Handle        Handle
	Name          string // of a built-in one
	Bundle        []byte // of a loaded one
	SourceSession uint64 // of one that was opened by its digest
	Source        Handle
}

// ListImage is one list. One without a recording is dead: what it was made of is closed.
type ListImage struct {
	Handle   Handle
	Entries  uint32
	ArgBytes uint32
	Recorded []byte
	Frames   int // copies for patches, which are charged
}

// TakenImage is an entry that was taken and not begun.
type TakenImage struct {
	Words [8]uint64
	Args  []uint64
	Code  gpuerr.Code
}

// WaitImage is the wait that holds a queue.
type WaitImage struct {
	UserData uint64 // of its entry
	Fence    Handle
	Value    uint64
	// OrderOnly: it goes on however the point ended.
	OrderOnly bool `json:",omitempty"`
}

// QueueImage is one queue.
type QueueImage struct {
	Handle   Handle
	Ring     ring.State
	Group    outcome.Outcome
	Skipping bool
	Deaf     bool
	Discard  int
	Doomed   uint64     // work before this position of the ring depends on failed work
	Wait     *WaitImage `json:",omitempty"`
	Left     []TakenImage
}
