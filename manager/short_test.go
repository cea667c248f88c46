package manager_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/manager"
)

// starve takes all free descriptors of a process, as a use unknown to the ledger would, until
// feed is called.
func starve(t *testing.T, pid int) (feed func()) {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: was.Max}, nil))
	return func() { require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil)) }
}

// shortage waits until the device is short of a resource, or of none.
func (w *world) shortage(c *client.Conn, short bool) client.DeviceInfo {
	w.t.Helper()
	var d client.DeviceInfo
	require.Eventually(w.t, func() bool {
		all, err := c.Devices(within(w.t))
		require.NoError(w.t, err)
		d = all[0]
		return d.State == client.Ready && (d.Shortage != "") == short
	}, patience, time.Millisecond)
	return d
}

// A driver without a free descriptor refuses new sessions and says so; existing ones
// continue, and new ones are served when descriptors are free again.
func TestDriverIsShort(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.PingInterval = 2 * time.Second })
	c := w.dial("default")
	s := w.open(c)
	b, err := s.CreateBuffer(within(t), 4096, client.Storage)
	require.NoError(t, err)
	_, pid := w.driver(1)

	feed := starve(t, pid)
	d := w.shortage(c, true)
	require.Contains(t, d.Shortage, "too many open files")
	_, err = s.CreateQueue(within(t), client.QueueOptions{})
	require.ErrorIs(t, err, gpuerr.IO)
	_, err = s.CreateBuffer(within(t), 2<<20, client.Storage)
	require.ErrorIs(t, err, gpuerr.IO)
	require.NoError(t, s.Err())
	feed()
	w.shortage(c, false)
	require.NoError(t, addVectors(within(t), s))
	require.NoError(t, b.Close(within(t)))
	epoch, _ := w.driver(1)
	require.EqualValues(t, 1, epoch)
}

// A driver that stays short is replaced: its sessions end, and the next one serves all
// clients.
func TestDriverThatStaysShortIsReplaced(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.PingInterval = 20 * time.Millisecond })
	c := w.dial("default")
	s := w.open(c)
	_, pid := w.driver(1)
	starve(t, pid)
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatal("a driver that serves nobody is still there")
	}
	next, err := c.OpenReady(within(t), 0)
	require.NoError(t, err)
	require.NoError(t, addVectors(within(t), next))
	require.True(t, slices.ContainsFunc(w.log.texts(), func(text string) bool {
		return strings.Contains(text, "short of what it needs") && strings.Contains(text, "too many open files")
	}), "the record of its end says why")
}
