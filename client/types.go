package client

import (
	"fmt"
	"time"

	"capgpu/outcome"
	"capgpu/program"
)

// DeviceState is what a device can do at the moment.
type DeviceState uint32

const (
	Starting   DeviceState = iota // the driver is being spawned
	Ready                         // Conn.Open works
	Recovering                    // lost; a successor driver is on its way
	Wedged                        // given up; an operator has to act
)

var stateNames = [...]string{"starting", "ready", "recovering", "wedged"}

func (s DeviceState) String() string { return nameOf(stateNames[:], int(s)) }

// Facet is the set of methods that a session has.
type Facet uint32

const (
	FacetMemory  Facet = iota // memory, fences, copies
	FacetProgram              // adds running programs that were vetted elsewhere
	FacetFull                 // adds loading programs
)

var facetNames = [...]string{"memory", "program", "full"}

func (f Facet) String() string { return nameOf(facetNames[:], int(f)) }

// Usage says what a buffer is for. The zero Usage means Storage.
type Usage uint32

const (
	Storage  Usage = 1 << iota // programs read and write it
	Upload                     // the client writes it
	Readback                   // the client reads it
	// Device keeps the buffer from the client: it lies in the device's own memory, where that
	// has some (Description.LocalBytes). It cannot be mapped, read or written; bytes come and
	// go by copies, as with Buffer.Upload and Buffer.Download. Programs read and write it
	// like Storage.
	Device
)

// Access is how a program uses a binding.
type Access uint32

const (
	Read      Access = 1
	Write     Access = 2
	ReadWrite        = Read | Write
)

var accessNames = [...]string{"none", "read", "write", "readWrite"}

func (a Access) String() string { return nameOf(accessNames[:], int(a)) }

func nameOf(names []string, i int) string {
	if i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

// DeviceInfo is one device of the tenant.
type DeviceInfo struct {
	Index       uint32
	State       DeviceState
	Epoch       uint64 // counts the drivers of this function
	MemoryBytes uint64 // device memory in all
	VendorID    uint16
	DeviceID    uint16
	Facet       Facet  // what Open gives this tenant
	Name        string // "mock0"
	Backend     string // "mock"
	PCIAddress  string // "0000:00:01.0"; empty for the fake function
	Recovery    RecoveryStep
	Generation  uint32 // drivers of this epoch, with those that were upgraded, from 1; 0: not told
	Suspended   bool   // an operator has it begin nothing
	Shortage    string // what its driver has run out of; empty: nothing
}

// RecoveryStep is how far the service has gone to get a device back.
type RecoveryStep = outcome.RecoveryStep

// The steps, the smallest first; see outcome.RecoveryStep.
const (
	RecoveryNone          = outcome.RecoveryNone
	RecoveryCancelling    = outcome.Cancelling
	RecoveryQueueReset    = outcome.QueueReset
	RecoveryFunctionReset = outcome.FunctionReset
	RecoveryRespawn       = outcome.Respawn
	RecoveryWedged        = outcome.WedgedStep
)

// State is one step in the life of a device.
type State struct {
	Epoch   uint64
	State   DeviceState
	Changed bool   // false: the time was up before anything changed
	Cause   string // of a loss
	// Recovery is the step of the ladder that the device is on. Steps take
	// milliseconds: LastRecovery is how far the last incident went, and Incidents
	// counts them in this epoch.
	Recovery     RecoveryStep
	LastRecovery RecoveryStep
	Incidents    uint64
	Suspended    bool // an operator has it begin nothing, whatever its state
}

// Description is what a session may do and the bounds the service promises.
type Description struct {
	Device             DeviceInfo
	HangBound          time.Duration // from a deadline to its typed outcome
	RevokeBound        time.Duration // from a close to its answer, and to that of every call and wait below
	MaxDeadline        time.Duration
	MaxBufferBytes     uint64
	MaxThreadsPerBlock uint32
	MaxBlockDim        uint32
	MaxGridDim         uint32
	MaxSharedBytes     uint32
	MaxBindings        uint32
	MaxInlineBytes     uint32
	MaxQueueEntries    uint32
	SubgroupSize       uint32
	Facet              Facet
	Programs           []string        // names that OpenProgram takes
	Poisoned           outcome.Outcome // what poisoned the session; pending: nothing has
	Checked            bool            // see Policy.Check
	// GlobalMemAlignment is what Binding.Off is a multiple of, in bytes, so that no access
	// of the widest type traps as misaligned, and no device refuses the binding
	// (gpuerr.LaunchLimit). On some devices less will do: the size of the widest type of the
	// program.
	GlobalMemAlignment uint32
	MaxBindingBytes    uint64 // 0: only the buffer bounds a binding
	// LocalBytes is memory of the device's own, for buffers of usage Device, which is charged
	// as deviceMemory; other memory is hostMemory then. 0: all is the host's, and deviceMemory.
	LocalBytes uint64
	// ComputeUnits is how many parts of the device run workgroups at the same time; 0: not
	// known.
	ComputeUnits uint32
	// Deterministic says that the same work on the same memory has the same result, but for
	// programs with ProgramInfo.OrderDependent.
	Deterministic bool
}

// BudgetEntry is one resource of the session's ledger account.
type BudgetEntry struct {
	Resource string // "deviceMemory", "buffers", ...
	Used     uint64
	Limit    uint64 // math.MaxUint64: no limit
	Peak     uint64
}

// BindingInfo describes one binding of a program, in binding order.
type BindingInfo struct {
	Name   string
	Access Access
	Type   string // of its elements: "f32"; "" where there is no single one
}

// FieldInfo is one scalar of a program's inline arguments.
type FieldInfo struct {
	Name string
	Type string // "f32"
	Off  uint32 // bytes
}

// Digest is the SHA-256 of a program's bundle.
type Digest [32]byte

// String is what OpenProgram takes: "sha256:" and 64 hexadecimal digits.
func (d Digest) String() string { return program.DigestName(d) }

// ProgramInfo is what a launch is checked against.
type ProgramInfo struct {
	Name        string
	Digest      Digest
	Bindings    []BindingInfo
	Inline      []FieldInfo
	InlineBytes uint32
	// Block is the workgroup that a launch must ask for, or where BlockFree is set
	// the default.
	Block     Dim3
	BlockFree bool
	// SharedBytes is static shared memory. Launch.SharedBytes is a multiple of
	// DynamicElementBytes, and 0 where that is 0.
	SharedBytes         uint32
	DynamicElementBytes uint32
	StackBytes          uint32   // private memory of a lane
	OrderDependent      bool     // results may depend on the order of workgroups
	Features            []string // what not every device has
	Warnings            []string // of the verifier, for people; at most 16
	// Two right results differ by at most ToleranceAbs + ToleranceRel·|result|.
	ToleranceAbs, ToleranceRel float64
}

// Dim3 counts in x, y and z.
type Dim3 struct{ X, Y, Z uint32 }

// Policy is what Session.Restrict grants.
type Policy struct {
	Facet       Facet
	MaxDeadline time.Duration     // 0: as the parent
	Limits      map[string]uint64 // by resource name; missing: as the parent
	Programs    []string          // names and digests; empty: as the parent
	// Check has programs run slowly and watched: data races between lanes, reads of
	// uninitialised shared memory and divergent barriers are traps, too.
	Check bool
}

// QueueOptions sizes a queue. Zero fields take the defaults.
type QueueOptions struct {
	Entries  uint32 // power of two, 2 to Description.MaxQueueEntries; default 256
	ArgBytes uint32 // argument arena, multiple of 64; default 64 KiB
}

// FenceState is where a fence stands.
type FenceState struct {
	Reached  uint64          // the last point that has ended
	Promised uint64          // the last point that was queued
	Outcome  outcome.Outcome // of the last point; pending while it has not ended
}

// Completion is how one command ended.
type Completion struct {
	Ticket     uint64 // as the push returned it
	Outcome    outcome.Outcome
	Err        error         // why the entry was refused; nil for work that ran
	DeviceTime time.Duration // measured, as charged
	// EndedAt is when the point of a Signal ended: the time since the device was opened in
	// this epoch, by a monotonic clock of the driver. It does not count the time that the
	// replacement of the driver takes in a live upgrade. The difference of two is the time
	// between them, also of different queues and sessions. 0 for other commands, and for a
	// Signal that did not end ok.
	EndedAt time.Duration
}
