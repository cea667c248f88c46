package conformance

import (
	"context"
	"time"

	"capgpu/client"
	"capgpu/outcome"
)

// The suite's view of a service. The Go client and the Cap'n Proto client implement
// the same interfaces; errors carry a gpuerr.Code, and outcomes are outcomes.

// Conn is one connection of one tenant.
type Conn interface {
	Devices(ctx context.Context) ([]client.DeviceInfo, error)
	Open(ctx context.Context, device uint32) (Session, error)
	// Next is the device's next state after "ready in epoch", or its state at the
	// end of timeout.
	Next(ctx context.Context, device uint32, epoch uint64, timeout time.Duration) (client.State, error)
	// Vanish ends the connection, and the sessions that were opened on it,
	// abruptly, as if the process had died.
	Vanish()
	// Close ends the connection in order.
	Close()
}

// Session is a session.
type Session interface {
	Describe(ctx context.Context) (client.Description, error)
	Budget(ctx context.Context) ([]client.BudgetEntry, error)
	Buffer(ctx context.Context, bytes uint64) (Buffer, error)
	BufferOf(ctx context.Context, bytes uint64, usage uint32) (Buffer, error)
	Fence(ctx context.Context) (Fence, error)
	Program(ctx context.Context, name string) (Program, error)
	Load(ctx context.Context, bundle []byte) (Program, error)
	Queue(ctx context.Context) (Queue, error)
	Restrict(ctx context.Context, p client.Policy) (Session, error)
	Close(ctx context.Context) error
}

// Buffer is a buffer.
type Buffer interface {
	// ID is its number: the handle of the Go client, the id of Cap'n Proto.
	ID() uint64
	Size() uint64
	// Read and Write move bytes by the service's own means, the mapping included.
	Read(ctx context.Context, off uint64, p []byte) error
	Write(ctx context.Context, off uint64, p []byte) error
	// Export is the memory for another process: a descriptor that the caller owns,
	// and the offset of the buffer in it.
	Export(ctx context.Context) (fd int, off, length uint64, err error)
	// Elsewhere is the same capability as another client holds it that got it from
	// this client, on a connection of its own. Further calls return the same.
	Elsewhere(ctx context.Context) (Buffer, error)
	Close(ctx context.Context) error
}

// Fence is a timeline.
type Fence interface {
	ID() uint64
	// Wait waits until the value is reached, or for timeout: then the outcome is
	// pending.
	Wait(ctx context.Context, value uint64, timeout time.Duration) (outcome.Outcome, error)
	Signal(ctx context.Context, value uint64) error
	State(ctx context.Context) (reached, promised uint64, err error)
	Close(ctx context.Context) error
}

// Program is code to launch.
type Program interface {
	Info() client.ProgramInfo
	Close(ctx context.Context) error
}

// Queue is an in-order queue.
type Queue interface {
	Submit(ctx context.Context, commands ...Command) (first uint64, err error)
	// Completions waits for at least one, or the end of timeout, and returns at
	// most max.
	Completions(ctx context.Context, max int, timeout time.Duration) ([]client.Completion, error)
	Cancel(ctx context.Context) error
	Close(ctx context.Context) error
}

// Op is the operation of a command.
type Op int

const (
	Launch Op = iota
	Copy
	Fill
	Signal
	Wait
)

// Binding is a part of a buffer; Len 0 means up to its end.
type Binding struct {
	Buffer   Buffer
	Off, Len uint64
}

// Command is one entry of a queue.
type Command struct {
	Op       Op
	Deadline time.Duration // 0: the policy's

	Program     Program // Launch
	Bindings    []Binding
	Inline      []byte
	Grid, Block client.Dim3
	SharedBytes uint32

	Dst, Src       Buffer // Copy; Fill has Dst
	DstOff, SrcOff uint64
	Bytes          uint64
	Pattern        uint32

	Fence     Fence // Signal, Wait
	Value     uint64
	OrderOnly bool // in a Wait: it continues whatever the outcome was
}
