package client

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A caller that reads results while this process closes the session is told of that, and not
// that the session never had a queue: Close sets why before it takes the queues away.
func TestKeptBesideClose(t *testing.T) {
	for range 100 {
		s := &Session{queues: []*Queue{}}
		s.mu.Lock()
		kept := make(chan error)
		go func() { kept <- s.kept() }()
		for range 10 { // it comes to the lock, probably
			runtime.Gosched()
		}
		s.cause.Store(errSessionClosed)
		s.queues = nil
		s.mu.Unlock()
		require.ErrorIs(t, <-kept, errSessionClosed)
	}
}
