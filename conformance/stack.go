package conformance

import (
	"context"
	"time"

	"capgpu/client"
	"capgpu/outcome"
)

// The tenants that a stack must have.
const (
	Alice = "alice" // the full facet, on the first device
	Bob   = "bob"   // the same
	Carol = "carol" // the full facet, on the first device and on all others
	Dave  = "dave"  // the full facet, DaveBytes of Abilities.Memory
	Erin  = "erin"  // the facet for memory
)

// DaveBytes is Dave's quota of device memory.
const DaveBytes = 256 << 10

// Kind is a kind of work.
type Kind int

const (
	Normal Kind = iota // ends ok, soon
	Slow               // ends ok after SlowTime at least
	Fault              // ends failed, by the device's report; the session stays usable
	Hang               // does not end before its deadline; a cancel stops it
	Deaf               // does not end and ignores a cancel; only a reset stops it
	Trap               // ends failed and poisons its session
	Stray              // makes the device access memory that it was not granted
)

var kindNames = [...]string{"normal", "slow", "fault", "hang", "deaf", "trap", "stray"}

// String is for people.
func (k Kind) String() string { return kindNames[k] }

// SlowTime is the least run time of Slow work.
const SlowTime = 100 * time.Millisecond

// Work is something for the device, made for one session.
type Work struct {
	Commands []Command
	Want     outcome.Outcome // of the last of them
	// Check checks the results; nil: there are none.
	Check func(ctx context.Context) error
	// Writes is the output buffer, if the work writes.
	Writes Buffer
}

// Abilities are the abilities of a device.
type Abilities struct {
	// QueueReset: the device can stop one queue and leave the others as they are.
	// Without it, the losses that deaf work causes its neighbours are reported as
	// innocent.
	QueueReset bool
	// Memory is the class that buffers which clients map are charged as.
	Memory string
	// Devices is the number of Carol's devices.
	Devices int
	// StrayDevice is the device, of Carol's, for Stray work.
	StrayDevice uint32
	// StrayOutcome is the outcome of Stray work, and StrayRecord the kind of its
	// audit record, if a component besides the device can see it.
	StrayOutcome outcome.Outcome
	StrayRecord  string
	// Pace is the factor by which the device is slower than memory: each test moves
	// this many times less.
	Pace int
}

// Record is one record of the audit log.
type Record struct {
	Kind, Tenant, Detail string
}

// Use is a tenant's charge.
type Use struct {
	Class                 string
	Used, Reserved, Limit uint64
}

// Stack is a running service, with its operator's actions.
type Stack interface {
	// Name is for the table: "mock, Go client".
	Name() string
	Can() Abilities
	// Cannot returns why a kind of work is impossible on this device; "" if it is
	// possible.
	Cannot(k Kind) string
	// Work makes work of a kind for a session. deadline is the deadline of the last
	// command.
	Work(ctx context.Context, s Session, k Kind, deadline time.Duration) (Work, error)
	// Dial connects as a tenant.
	Dial(ctx context.Context, tenant string) (Conn, error)
	// Raw sends bytes that are no message of the protocol on a fresh connection. It
	// returns when the service has closed it, or with an error.
	Raw(ctx context.Context, tenant string, bytes []byte) error
	// Flood asks n times for a session's description and reads no answer meanwhile.
	// It returns how many were answered or refused, typed, once it does read; if
	// the connection ends, it returns an error. paused is called before it reads.
	Flood(ctx context.Context, tenant string, n int, paused func()) (answered, refused int, err error)

	// Drivers are the processes of each device's driver, and Gates the processes
	// between clients and it; Manager is the process that starts them.
	Driver(ctx context.Context, device uint32) (pid int, err error)
	Gates() []int
	Manager() int
	// Kill kills the driver of a device, as kill -9 does.
	Kill(ctx context.Context, device uint32) error
	// Charges are a tenant's charges on a device, without those that are spent and
	// never come back.
	Charges(ctx context.Context, tenant string, device uint32) ([]Use, error)
	// Audit are all records of a kind.
	Audit(kind string) ([]Record, error)
	// SetLimit changes a limit of a tenant; 0 restores it.
	SetLimit(ctx context.Context, tenant, class string, amount uint64) error
	// Upgrade replaces the driver of a device in use. With fits false it offers a
	// successor of another version, which must be refused.
	Upgrade(ctx context.Context, device uint32, fits bool) error
	// CannotUpgrade returns why a device cannot be upgraded, if so: then an upgrade
	// is refused, typed.
	CannotUpgrade() string
	// Resets is the number of resets of a device under its driver.
	Resets(ctx context.Context, device uint32) (uint64, error)
}

// State is a device's state from a tenant's side.
type State = client.State
