package ring

import (
	"context"

	"capgpu/internal/shm"
)

// sender is the end of a wake that wakes: *shm.Sender, or that of a local ring.
type sender interface {
	Signal() error
	DupFD() (int, error)
	Close() error
}

// receiver is the end that sleeps: *shm.Receiver, or that of a local ring.
type receiver interface {
	Wait(ctx context.Context) error
	Drain()     // takes what woke the last Wait; said before the peer is asked for the next wake
	Err() error // whether the sender, or this end, is closed
	DupFD() (int, error)
	Close() error
}

// newPipe is a wake between processes.
func newPipe() (sender, receiver, error) {
	s, r, err := shm.NewWake()
	if err != nil {
		return nil, nil, err // not nil pointers in interfaces
	}
	return s, r, nil
}
