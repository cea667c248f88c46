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
	Carol = "carol" // the full facet, on the first device and on the others, if there are some
	Dave  = "dave"  // the full facet, DaveBytes of deviceMemory
	Erin  = "erin"  // the facet for memory
)

// DaveBytes is Dave's quota of device memory.
const DaveBytes = 256 << 10

// Kind is a kind of work.
type Kind int

const (
	Normal Kind = iota // ends ok, soon
	Slow               // ends ok after SlowTime at least
	Fault              // ends failed, by the device's word; the session can be used on
	Hang               // does not end before its deadline; it stops when told to
	Deaf               // does not end and does not listen; only a reset stops it
	Trap               // ends failed and poisons its session
	Stray              // has the device reach for memory that it was not granted
)

var kindNames = [...]string{"normal", "slow", "fault", "hang", "deaf", "trap", "stray"}

// String is for people.
func (k Kind) String() string { return kindNames[k] }

// SlowTime is how long Slow work runs at least.
const SlowTime = 100 * time.Millisecond

// Work is something for the device, made for one session.
type Work struct {
	Commands []Command
	Want     outcome.Outcome // of the last of them
	// Check says whether the results are there; nil: there are none.
	Check func(ctx context.Context) error
	// Writes is what it would write, if it writes.
	Writes Buffer
}

// Abilities is what a device can be made to do.
type Abilities struct {
	// QueueReset: the device can stop one queue and leave the others as they are. Without
	// it, what deaf work costs its neighbours is told as innocent.
	QueueReset bool
	// Devices is how many devices Carol has.
	Devices int
	// StrayDevice is the device, of Carol's, that Stray work is done on.
	StrayDevice uint32
	// StrayOutcome is what becomes of Stray work, and StrayRecord the kind of the audit
	// record that tells of it, if somebody besides the device can see it.
	StrayOutcome outcome.Outcome
	StrayRecord  string
	// Pace is how much slower the device is than memory: what is moved in each test is
	// this many times less.
	Pace int
}

// Record is one record of the audit log.
type Record struct {
	Kind, Tenant, Detail string
}

// Use is what a tenant is charged with.
type Use struct {
	Class                 string
	Used, Reserved, Limit uint64
}

// Stack is a service that runs, and what its operator can do.
type Stack interface {
	// Name is for the table: "mock, Go client".
	Name() string
	Can() Abilities
	// Cannot says why a kind of work cannot be on this device; "" if it can.
	Cannot(k Kind) string
	// Work makes work of a kind for a session. deadline is that of the last command.
	Work(ctx context.Context, s Session, k Kind, deadline time.Duration) (Work, error)
	// Dial connects as a tenant.
	Dial(ctx context.Context, tenant string) (Conn, error)
	// Raw sends bytes, which are no message of the protocol, on a fresh connection, and
	// returns when the service has closed that, or with an error.
	Raw(ctx context.Context, tenant string, bytes []byte) error
	// Flood asks n times for a session's description and reads no answer while it asks. It
	// returns how many were answered or refused, typed, once it does read; a connection
	// that ends is told as an error. paused is called before it reads.
	Flood(ctx context.Context, tenant string, n int, paused func()) (answered, refused int, err error)

	// Drivers are the processes of each device's driver, and Gates those between clients
	// and it; Manager is the process that starts them.
	Driver(ctx context.Context, device uint32) (pid int, err error)
	Gates() []int
	Manager() int
	// Kill kills the driver of a device, as kill -9 does.
	Kill(ctx context.Context, device uint32) error
	// Charges is what a tenant is charged with on a device. What is spent and never comes
	// back is not in it.
	Charges(ctx context.Context, tenant string, device uint32) ([]Use, error)
	// Audit are all records of a kind.
	Audit(kind string) ([]Record, error)
	// SetLimit changes a limit of a tenant for all that it has; 0: as it was.
	SetLimit(ctx context.Context, tenant, class string, amount uint64) error
	// Upgrade replaces the driver of a device while it is used. With false a successor is
	// offered that speaks another version: it must be refused.
	Upgrade(ctx context.Context, device uint32, fits bool) error
	// CannotUpgrade says why not, if a device cannot be upgraded: then it is refused, typed.
	CannotUpgrade() string
	// Resets is how often a device was reset under its driver.
	Resets(ctx context.Context, device uint32) (uint64, error)
}

// State is what a tenant sees of a device.
type State = client.State
