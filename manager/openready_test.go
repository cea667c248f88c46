package manager_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
)

// OpenReady waits up to the requested time, occupies one of the places for waiters, and opens
// the session as soon as the device is available.
func TestOpenReady(t *testing.T) {
	w := start(t, nil)
	a := w.admin()
	s, err := w.dial("default").OpenReady(within(t), 0)
	require.NoError(t, err)
	require.NoError(t, s.Close(within(t)))
	_, err = w.dial("default").OpenReady(within(t), 9)
	require.ErrorIs(t, err, gpuerr.NoDevice)

	require.NoError(t, a.Suspend(within(t), "mock0"))
	gone, leave := context.WithCancel(t.Context())
	c := w.dial("default")
	ended := make(chan error, 1)
	go func() {
		_, err := c.OpenReady(gone, 0)
		ended <- err
	}()
	leave()
	require.ErrorIs(t, <-ended, context.Canceled)
	opened := make(chan *client.Session, 1)
	go func() {
		s, err := c.OpenReady(within(t), 0)
		if err != nil {
			t.Errorf("OpenReady: %v", err)
		}
		opened <- s
	}()
	require.NoError(t, a.Resume(within(t), "mock0"))
	s = <-opened
	require.NoError(t, addVectors(within(t), s))
	require.NoError(t, s.Close(within(t)))
}

// A driver that has lost its device says so until it ends. A client that waits for a driver
// waits for the next one, and learns its fate.
func TestOpenReadyOfALostDevice(t *testing.T) {
	w := lied(t, "its device is lost")
	w.driver(1)
	_, err := w.dial("default").OpenReady(within(t), 0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	require.ErrorContains(t, err, "E_PROTOCOL", "of the second one")
}

// A driver that never has room, and a client that waits for it, do not fill the log.
func TestOpenReadyIsPaced(t *testing.T) {
	w := lied(t, "no room for anybody")
	w.driver(1)
	c := w.dial("default")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	_, err := c.OpenReady(ctx, 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, w.log.kinds()["session.attach"], "there never was a session")
	attempts := w.log.kinds()["session.refused"]
	require.Greater(t, attempts, 1)
	require.LessOrEqual(t, attempts, 20, "five in 62 ms, and then one in 64 ms")
}
