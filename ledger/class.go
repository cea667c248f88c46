package ledger

import "math"

// Class is one kind of resource. Its unit is bytes where the name says so,
// nanoseconds for DeviceTime, and a count otherwise.
type Class uint8

// The classes, in the order of every wire and snapshot.
const (
	Connections Class = iota
	DeviceMemory
	HostMemory // pinned
	IOVAEntries
	MMIOBytes
	IRQVectors
	Sessions
	Buffers
	Fences
	Programs
	ProgramBytes
	QueueSlots
	InFlight
	AuditBytes  // spent, never comes back
	DeviceTime  // spent, never comes back
	Descriptors // of the driver's process: sockets, memory files, pipes
	NumClasses
)

// Unlimited is the limit that only the arithmetic enforces.
const Unlimited = math.MaxUint64

var classNames = [NumClasses]string{
	Connections:  "connections",
	DeviceMemory: "deviceMemory",
	HostMemory:   "hostMemory",
	IOVAEntries:  "iovaEntries",
	MMIOBytes:    "mmioBytes",
	IRQVectors:   "irqVectors",
	Sessions:     "sessions",
	Buffers:      "buffers",
	Fences:       "fences",
	Programs:     "programs",
	ProgramBytes: "programBytes",
	QueueSlots:   "queueSlots",
	InFlight:     "inFlight",
	AuditBytes:   "auditBytes",
	DeviceTime:   "deviceTime",
	Descriptors:  "descriptors",
}

// String is the stable name, as in errors, policies and metrics.
func (c Class) String() string {
	if c < NumClasses {
		return classNames[c]
	}
	return "unknown"
}

// Spent says that c is consumption: charged by Spend, and never given back.
func (c Class) Spent() bool { return c == AuditBytes || c == DeviceTime }

// ParseClass is the inverse of String.
func ParseClass(name string) (Class, bool) {
	for c, n := range classNames {
		if n == name {
			return Class(c), true
		}
	}
	return 0, false
}

// Limits holds one limit per class, in the class's unit. The zero value allows
// nothing; start from NoLimits.
type Limits [NumClasses]uint64

// NoLimits allows everything.
func NoLimits() Limits {
	var l Limits
	for c := range l {
		l[c] = Unlimited
	}
	return l
}
