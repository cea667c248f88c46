package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// load is a few clients at work.
type load struct {
	*tally
	stop context.CancelFunc
	done sync.WaitGroup
}

func (s *stack) load(rng *rand.Rand, clients, gates int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{tally: &tally{}, stop: cancel}
	for range clients {
		w := &worker{tally: l.tally, socket: s.socket(), deadline: s.deadline, scarce: s.scarce, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
		l.done.Go(func() { w.run(ctx) })
	}
	for range gates {
		w := &gateWorker{tally: l.tally, socket: s.capnp(), scarce: s.scarce, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
		l.done.Go(func() { w.run(ctx) })
	}
	return l
}

// works waits until rounds more rounds of work are done.
func (l *load) works(t *testing.T, rounds uint64) {
	t.Helper()
	from := l.rounds.Load()
	eventually(t, func() bool { return l.rounds.Load() >= from+rounds || len(l.faults()) > 0 }, "the service does not work")
	require.Empty(t, l.faults())
}

// end stops the clients and fails the test on their faults.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.done.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(2 * callBound):
		t.Fatalf("a client was never answered")
	}
	require.Empty(t, l.faults())
	require.Empty(t, l.awake(), "an old session is not dead")
}

// told formats a line of the table.
func (l *load) told(took time.Duration) string {
	return fmt.Sprintf("served again after %4d ms; %d ok, %d otherwise, %d of %d sessions lost, none false",
		took.Milliseconds(), l.ok.Load(), l.notOK.Load(), l.lost.Load(), l.sessions.Load())
}
