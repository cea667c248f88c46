package manager_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/manager"
)

// While a device is suspended no work begins and none is lost.
func TestSuspend(t *testing.T) {
	w := start(t, nil)
	a := w.admin()
	s := w.open(w.dial("default"))
	c := newCounter(t, s)
	require.NoError(t, c.round(5))
	require.NoError(t, a.Suspend(within(t), "mock0"))
	require.NoError(t, a.Suspend(within(t), "mock0"))
	devices, err := w.dial("default").Devices(within(t))
	require.NoError(t, err)
	require.True(t, devices[0].Suspended)
	_, err = w.dial("default").Open(within(t), 0)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorContains(t, err, "suspended")
	_, err = a.Upgrade(within(t), "mock0")
	require.ErrorIs(t, err, gpuerr.Busy)
	done := make(chan error, 1)
	go func() { done <- c.round(5) }()
	select {
	case err := <-done:
		require.Fail(t, "work ended while the device is suspended", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, a.Resume(within(t), "mock0"))
	require.NoError(t, <-done)
	c.check()

	// The end of device-manager ends waiting work, and starts none of it. A client's request
	// to a suspended device waits, too, so the manager ends before the client.
	require.NoError(t, a.Suspend(within(t), "mock0"))
	go func() { done <- c.round(5) }()
	select {
	case err := <-done:
		require.Fail(t, "work ended while the device is suspended", "%v", err)
	case <-time.After(10 * time.Millisecond):
	}
	began := time.Now()
	w.stop()
	require.Less(t, time.Since(began), patience/2)
	require.Error(t, <-done)
}

// A suspension is the operator's: it outlives the driver, is shown while there is none, and
// ends with a resume, also one that is requested while there is none.
func TestSuspensionOutlivesTheDriver(t *testing.T) {
	w := start(t, nil)
	a := w.admin()
	conn := w.dial("default")
	c := newCounter(t, w.open(conn))
	require.NoError(t, c.round(5))
	_, pid := w.driver(1)
	require.NoError(t, a.Suspend(within(t), "mock0"))
	for epoch := uint64(2); epoch < 4; epoch++ {
		kill(t, pid)
		for st := (client.State{Epoch: epoch - 1}); st.State != client.Ready || st.Epoch != epoch; {
			var err error
			st, err = conn.NextState(within(t), 0, st.Epoch)
			require.NoError(t, err)
			require.True(t, st.Suspended, "%+v", st)
		}
		_, pid = w.driver(epoch)
		devices, err := conn.Devices(within(t))
		require.NoError(t, err)
		require.True(t, devices[0].Suspended)
		require.Equal(t, epoch, devices[0].Epoch)
		_, err = conn.Open(within(t), 0)
		require.ErrorIs(t, err, gpuerr.Busy)
		require.ErrorContains(t, err, "suspended")
		_, err = a.Upgrade(within(t), "mock0")
		require.ErrorIs(t, err, gpuerr.Busy)
	}
	require.Error(t, c.round(1), "its session ended with the first driver")
	opened := make(chan error, 1)
	go func() {
		s, err := conn.OpenReady(within(t), 0)
		if err == nil {
			err = addVectors(within(t), s)
		}
		opened <- err
	}()
	require.NoError(t, a.Resume(within(t), "mock0"))
	require.NoError(t, <-opened)
	st, err := conn.NextStateFor(within(t), 0, 3, 0)
	require.NoError(t, err)
	require.False(t, st.Suspended)
	require.Equal(t, 1, w.log.kinds()["device.suspend"])
	require.Equal(t, 1, w.log.kinds()["device.resume"])
	require.NoError(t, w.Check())
}

// A driver that is stopped while it has to suspend, and continues after that was given up,
// does not suspend late: it serves, and the device is as the operator was told.
func TestSuspendThatIsGivenUp(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.StopTimeout, c.PingTimeout = 100*time.Millisecond, 2*time.Second })
	a := w.admin()
	c := newCounter(t, w.open(w.dial("default")))
	require.NoError(t, c.round(5))
	_, pid := w.driver(1)
	freeze(t, pid)
	asked := make(chan error, 1)
	go func() { asked <- a.Suspend(within(t), "mock0") }()
	// Given up after 2.1 s; then the Thaw waits as long as a ping may.
	timer := time.AfterFunc(3*time.Second, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	defer timer.Stop()
	require.Error(t, <-asked)
	require.NoError(t, c.round(5))
	c.check()
	devices, err := w.dial("default").Devices(within(t))
	require.NoError(t, err)
	require.False(t, devices[0].Suspended)
	require.EqualValues(t, 1, devices[0].Epoch, "it is the same driver")
	require.Zero(t, w.log.kinds()["device.suspend"])
	require.NoError(t, a.Suspend(within(t), "mock0"))
	require.NoError(t, a.Resume(within(t), "mock0"))
	require.NoError(t, c.round(5))
}
