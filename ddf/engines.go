package ddf

import "context"

// Engines are processes that hold the nodes of a function which its kernel driver keeps, and
// the library of its vendor. The driver's process has neither.
type Engines interface {
	// Open gives the engine of a group of contexts: a tenant's. It works for nobody else. It is
	// one that waited, or a new one; gpuerr.Busy where as many as the policy allows are open.
	Open(ctx context.Context, group uint32) (Engine, error)
}

// Engine is one such process.
type Engine interface {
	// Link is the socket to the process, of type SOCK_SEQPACKET (gpu/backend/engine/wire). It
	// is the Engine's, which closes it when Kill succeeds: a reader that outlives that has a
	// duplicate.
	Link() int
	// Done is closed when the process is dead and reaped, whatever ended it.
	Done() <-chan struct{}
	// Kill ends the process and returns when it is dead and reaped, and the device has
	// answered a launch of a next engine. Then nothing of the dead one touches memory. An error
	// says that this is not known: the function is lost.
	Kill(ctx context.Context) error
}
