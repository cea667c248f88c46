package ring

import (
	"context"

	"capgpu/internal/shm"
)

// Sender is the end of a wake that wakes: *shm.Sender, or that of a ring made by NewOver.
type Sender interface {
	Signal() error
	DupFD() (int, error)
	Close() error
}

// Receiver is the end that sleeps: *shm.Receiver, or that of a ring made by NewOver.
type Receiver interface {
	Wait(ctx context.Context) error
	Drain()      // takes what woke the last Wait; said before the peer is asked for the next wake
	Take() error // takes what there is, or says that the sender, or this end, is closed
	Err() error  // whether the sender, or this end, is closed
	FD() int     // -1: none
	DupFD() (int, error)
	Close() error
}

// newPipe is a wake between processes.
func newPipe() (Sender, Receiver, error) {
	s, r, err := shm.NewWake()
	if err != nil {
		return nil, nil, err // not nil pointers in interfaces
	}
	return s, r, nil
}

// Wake is both ends of one.
type Wake struct {
	Sender
	Receiver
}

// NewOver makes both ends of a ring within one process, over memory of cfg.Bytes() zeros and
// wakes of the caller: toDriver wakes the Server, toClient the Client. The protocol is the
// same, and works on virtual time if the wakes do. Neither end looks before it sleeps, and
// neither has descriptors. Package ringtest has such wakes.
func NewOver(cfg Config, memory []byte, toDriver, toClient Wake) (*Server, *Client, error) {
	if err := cfg.check(); err != nil {
		return nil, nil, err
	}
	l := layoutOf(cfg)
	v, err := viewOf(memory, l)
	if err != nil {
		return nil, nil, err
	}
	storeHeader(memory, l.header())
	s := &Server{layout: l, mapping: memory, view: v, work: toDriver.Receiver, done: toClient.Sender}
	c := &Client{layout: l, mapping: memory, view: v, wake: toDriver.Sender, done: toClient.Receiver}
	c.begin(patience{sleepy: true})
	return s, c, nil
}
