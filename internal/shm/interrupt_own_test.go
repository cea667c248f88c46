package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// newInterrupt is one, and the descriptor of the peer that raises it.
func newInterrupt(t *testing.T) (*Interrupt, func(n uint64)) {
	t.Helper()
	leakcheck.Check(t)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	peer, err := dupFD(fd)
	require.NoError(t, err)
	e, err := InterruptFromManager(fd)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.NoError(t, unix.Close(peer))
	})
	b := make([]byte, 8)
	return e, func(n uint64) {
		binary.NativeEndian.PutUint64(b, n)
		if _, err := unix.Write(peer, b); err != nil {
			t.Error(err)
		}
	}
}

// Every count of the peer is returned, and nothing that ends a wait is counted.
func TestInterruptCounts(t *testing.T) {
	e, raise := newInterrupt(t)
	raise(5)
	n, err := e.Wait(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 5, n)

	for range 100 {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { _, err := e.Wait(ctx); ended <- err }()
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	}
	raise(3)
	n, err = e.Wait(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
}

// Contexts that end at any moment lose no interrupt and invent none.
func TestInterruptCountsThroughCancels(t *testing.T) {
	e, raise := newInterrupt(t)
	const many = 2000
	var raising sync.WaitGroup
	raising.Go(func() {
		for range many {
			raise(1)
		}
	})
	var total uint64
	for i := 0; total < many; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%50)*time.Microsecond)
		n, err := e.Wait(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			require.NoError(t, err)
		}
		total += n
	}
	raising.Wait()
	require.EqualValues(t, many, total)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := e.Wait(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "nothing is left")
}

func TestInterruptClose(t *testing.T) {
	e, _ := newInterrupt(t)
	ended := make(chan error, 1)
	go func() { _, err := e.Wait(context.Background()); ended <- err }()
	require.NoError(t, e.Close())
	require.ErrorIs(t, <-ended, gpuerr.Closed)
	require.NoError(t, e.Close())
	_, err := e.Wait(context.Background())
	require.ErrorIs(t, err, gpuerr.Closed)
}

// Waiting again allocates nothing.
func TestInterruptAllocates(t *testing.T) {
	e, raise := newInterrupt(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		raise(1)
		if n, err := e.Wait(ctx); n != 1 || err != nil {
			t.Error(n, err)
		}
	}))
}
