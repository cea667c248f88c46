// Package wire is what the core and an engine say to each other.
//
// An engine is a process that holds the library of a device's vendor and the device's nodes,
// and works for one tenant. The core keeps all that matters when an engine is killed: the
// memory of clients, programs, queues and outcomes. An engine is told small whole orders, with
// every size final; it decides nothing.
//
//	core (gpu/backend/engine) ──orders──► engine (gpu/backend/engine/host) ──► host.Device
//	                          ◄─results──
//
// Neither trusts the other's words: each bounds what it reads and copies it once.
package wire

import (
	"time"

	"capgpu/program"
)

// Limits of the wire.
const (
	MaxEntries  = 1024 // of a list
	MaxBindings = program.MaxBindings
	MaxPush     = program.MaxInlineBytes + 4 // the program's push constants, and the entry's number
	// MaxAhead is how many runs may be submitted and not ended, in one engine.
	MaxAhead = 4
	// SlotBytes is what an engine tells of an entry that ended early: a slot of the trap
	// buffer (program/instrument).
	SlotBytes = 256
)

// Device is what an engine says of its device once, at its start.
type Device struct {
	Name          string // "NVIDIA H200"
	Driver        string // name and version: "NVIDIA 580.159.04"
	PCIAddress    string // "0000:01:00.0"; empty: no PCI function
	Vendor, Model uint32 // PCI ids
	// LocalBytes is memory of the device's own that tenants may have; 0: it works on the
	// host's.
	LocalBytes uint64
	// Limits, as the device has them.
	MaxThreadsPerBlock uint32
	MaxBlock, MaxGrid  program.Dim3
	MaxSharedBytes     uint32
	MaxBindings        uint32 // with the trap buffer
	MaxPushBytes       uint32 // with the entry's number
	SubgroupSize       uint32
	OffsetAlign        uint32 // of a binding in its memory: a power of two
	MaxBindingBytes    uint64
	ComputeUnits       uint32 // 0: not known
	Features           []program.Feature
}

// Names that the core gives, and uses again only when the engine has ended them.
type (
	MemoryID   uint32
	PipelineID uint32
	ListID     uint32
)

// Pipeline is a program that is ready to be compiled: nothing of it is open.
type Pipeline struct {
	Module []byte // instrumented SPIR-V, little-endian; its buffers are in set 0
	Entry  string
	// Bindings are the program's buffers: 0 to Bindings-1. The trap buffer is at Bindings.
	Bindings  uint32
	PushBytes uint32 // all of the push constants; the last u32 is the number of the entry
	// Constants are values of specialisation constants: the workgroup's and the dynamic shared
	// array's too.
	Constants []program.Constant
	Block     program.Dim3 // for information: what the constants make of it
	// SharedBytes is all of the workgroup's shared memory.
	SharedBytes uint32
}

// Span is a part of a piece of memory.
type Span struct {
	Memory      MemoryID
	Off, Length uint64
}

// Op is what an entry does.
type Op uint8

const (
	OpLaunch Op = iota + 1
	OpCopy      // Spans[0] is written, Spans[1] read; equal lengths; they may overlap
	OpFill      // Spans[0] is written with Pattern; offset and length are multiples of 4
)

// Entry is one step of a list.
type Entry struct {
	Op       Op
	Pipeline PipelineID // OpLaunch
	Grid     program.Dim3
	Rounds   uint32 // bound of the rounds of a lane's loops; 0: instrument.MaxRounds
	Spans    []Span
	Access   []program.Access // OpLaunch: of each span
	Push     []byte           // without the entry's number
	Pattern  uint32           // OpFill
}

// Result is how a run of a list ended.
type Result struct {
	// Begun counts entries that began; an entry behind one that ended early does not.
	Begun uint32
	// Early says that entry Begun-1 ended early. Slot is its slot of the trap buffer, as the
	// device left it.
	Early bool
	Slot  [SlotBytes]byte
	// Skipped says that the run began nothing, because one before it ended early.
	Skipped bool
	// DeviceTime is measured by the device, for the whole run.
	DeviceTime time.Duration
}
