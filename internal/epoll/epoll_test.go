package epoll

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func newSet(t *testing.T) *Set {
	s, err := New()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func pipe(t *testing.T) (r, w int) {
	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
	return fds[0], fds[1]
}

// A descriptor is reported once each time that something comes, and when it is hung up.
func TestWaitReports(t *testing.T) {
	s := newSet(t)
	r, w := pipe(t)
	defer unix.Close(r)
	require.NoError(t, s.Add(r, 7))
	require.Empty(t, s.Wait(0))
	for range 3 {
		_, err := unix.Write(w, []byte{1})
		require.NoError(t, err)
		require.Equal(t, []uint32{7}, s.Wait(-1))
		require.Empty(t, s.Wait(0), "it was reported")
	}
	unix.Close(w)
	require.Equal(t, []uint32{7}, s.Wait(-1))
	s.Remove(r)
	require.Error(t, s.Add(-1, 8))
}

// A removed descriptor is not reported.
func TestRemove(t *testing.T) {
	s := newSet(t)
	r, w := pipe(t)
	defer unix.Close(r)
	defer unix.Close(w)
	require.NoError(t, s.Add(r, 7))
	s.Remove(r)
	_, err := unix.Write(w, []byte{1})
	require.NoError(t, err)
	require.Empty(t, s.Wait(0))
}

// More descriptors than one Wait reports are reported by the next ones.
func TestManyDescriptors(t *testing.T) {
	s := newSet(t)
	seen := map[uint32]bool{}
	for i := range uint32(maxEvents + 10) {
		r, w := pipe(t)
		t.Cleanup(func() { unix.Close(r); unix.Close(w) })
		require.NoError(t, s.Add(r, i))
		_, err := unix.Write(w, []byte{1})
		require.NoError(t, err)
	}
	for range 3 {
		for _, tag := range s.Wait(0) {
			require.False(t, seen[tag])
			seen[tag] = true
		}
	}
	require.Len(t, seen, maxEvents+10)
}

// Wake ends the wait that goes on, and one that comes later.
func TestWake(t *testing.T) {
	s := newSet(t)
	s.Wake()
	s.Wake()
	require.Empty(t, s.Wait(-1))
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		s.Wait(-1)
	}()
	s.Wake()
	<-woken
	for range 1 << 17 { // more than the pipe holds
		s.Wake()
	}
	require.Empty(t, s.Wait(-1))
}

// A wait is no shorter than was asked for, also below a millisecond.
func TestWaitTime(t *testing.T) {
	s := newSet(t)
	for _, d := range []time.Duration{1, 300 * time.Microsecond, 3 * time.Millisecond} {
		began := time.Now()
		require.Empty(t, s.Wait(d))
		require.GreaterOrEqual(t, time.Since(began), d)
	}
}
