// Package outcome says how a piece of work ended.
//
// Every submission and every fence point ends exactly once, in one Outcome.
// The numbers are those of OutcomeKind, OutcomeCause and TrapKind in
// schema/capos.capnp and travel unchanged in ring completions and control
// messages, so that no layer translates one into another.
package outcome

import "fmt"

// Kind is how work ended.
type Kind uint8

const (
	Pending    Kind = iota // not an outcome: nothing has ended yet
	OK                     // done, and its effects are visible
	Failed                 // this work is guilty; Cause says of what
	Innocent               // reset by another's fault
	Cancelled              // by its owner, or because work it waited for did not succeed
	Revoked                // its session, queue, buffer or program was closed
	TimedOut               // it missed its deadline and was stopped
	DeviceLost             // the device or its driver is gone
	numKinds
)

// Cause refines a Kind other than OK.
type Cause uint8

const (
	NoCause     Cause = iota
	TrapCause         // the program did something undefined; see Trap
	DeviceError       // the device reported an error completion
	LaunchLimit       // refused at launch
	Dependency        // a fence it waited for did not end OK
	Hang              // no progress until the deadline
	Reset             // the device was reset
	Gone              // the device no longer answers (reads of all ones)
	Closed            // revoked by a close
	Protocol          // the ring or its entries were malformed
	Poisoned          // earlier work of the same session trapped
	IOMMUFault        // the device reached for memory that it was not granted
	numCauses
)

// TrapKind is the undefined act of a trapped lane.
type TrapKind uint8

const (
	NoTrap           TrapKind = iota
	OutOfBounds               // access beyond a binding
	Misaligned                // access not a multiple of its size
	DivideByZero              // integer division by zero
	Unreachable               // control reached a place that the program declares unreachable
	MemoryGone                // the memory under a binding could not be read
	DivergentBarrier          // not all lanes of a workgroup reached a barrier together
	DataRace                  // two lanes used the same memory with no barrier between (checked sessions)
	Uninitialized             // shared memory was read before it was written (checked sessions)
	numTrapKinds
)

// Trap locates the first lane that trapped.
type Trap struct {
	Kind      TrapKind
	Binding   uint16 // or NoBinding
	Workgroup uint32 // linear index in the grid
	Lane      uint32 // linear index in the workgroup
	Offset    uint64 // bytes from the start of the binding
}

// NoBinding is the Binding of a trap in shared or private memory; its Offset is
// that within the variable.
const NoBinding = 0xFFFF

// String is for people: "outOfBounds binding=2 offset=4096 workgroup=1 lane=0".
func (t Trap) String() string {
	if t.Binding == NoBinding {
		return fmt.Sprintf("%v offset=%d workgroup=%d lane=%d", t.Kind, t.Offset, t.Workgroup, t.Lane)
	}
	return fmt.Sprintf("%v binding=%d offset=%d workgroup=%d lane=%d", t.Kind, t.Binding, t.Offset, t.Workgroup, t.Lane)
}

// Outcome is a value; the zero Outcome is pending.
type Outcome struct {
	Kind  Kind
	Cause Cause
	Trap  Trap // meaningful when Cause is TrapCause
}

// Success is the outcome of work that did all it was asked.
var Success = Outcome{Kind: OK}

var kindNames = [numKinds]string{"pending", "ok", "failed", "innocent", "cancelled", "revoked", "timedOut", "deviceLost"}
var causeNames = [numCauses]string{"none", "trap", "deviceError", "launchLimit", "dependency", "hang", "reset", "gone", "closed", "protocol", "poisoned", "iommuFault"}
var trapNames = [numTrapKinds]string{"none", "outOfBounds", "misaligned", "divideByZero", "unreachable", "memoryGone", "divergentBarrier", "dataRace", "uninitialized"}

func (k Kind) String() string     { return name(kindNames[:], int(k)) }
func (c Cause) String() string    { return name(causeNames[:], int(c)) }
func (t TrapKind) String() string { return name(trapNames[:], int(t)) }

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

// Valid reports whether the numbers are ones this package knows. A process that reads an
// Outcome from a less trusted side checks it before using it.
func (o Outcome) Valid() bool {
	return o.Kind < numKinds && o.Cause < numCauses && o.Trap.Kind < numTrapKinds
}

// Worse returns the worse of two outcomes, which is how a fence point sums up
// the work it covers: OK only if all of it was. The guilty outcome wins over
// those it caused; among equals the first stands.
func Worse(a, b Outcome) Outcome {
	if severity[b.Kind] > severity[a.Kind] {
		return b
	}
	return a
}

var severity = [numKinds]uint8{Pending: 0, OK: 1, Cancelled: 2, Innocent: 3, Revoked: 4, DeviceLost: 5, TimedOut: 6, Failed: 7}

// String is for people: "failed: trap outOfBounds binding=2 offset=4096 workgroup=1 lane=0".
func (o Outcome) String() string {
	switch {
	case o.Cause == NoCause:
		return o.Kind.String()
	case o.Cause == TrapCause:
		return fmt.Sprintf("%v: trap %v", o.Kind, o.Trap)
	default:
		return fmt.Sprintf("%v: %v", o.Kind, o.Cause)
	}
}
