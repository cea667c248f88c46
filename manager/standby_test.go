package manager_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/proctest"
	"capgpu/ledger"
	"capgpu/manager"
)

// startStandby runs a manager that keeps a standby.
func startStandby(t *testing.T, change func(*manager.Config)) *world {
	return start(t, func(c *manager.Config) {
		c.Policy.Device.Respawn.Standby = true
		if change != nil {
			change(c)
		}
	})
}

// standby waits for a ready standby, and returns its process, which is not the driver's.
func (w *world) standby() (pid int) {
	w.t.Helper()
	_, driver := w.driver(1)
	require.Eventually(w.t, func() bool {
		pid = w.standbyBeside(driver)
		return pid != 0 && blocked(pid)
	}, patience, time.Millisecond)
	return pid
}

// standbyBeside returns the last standby of the log, if it lives and is not the driver.
func (w *world) standbyBeside(driver int) int {
	fields := strings.Fields(w.log.detail("driver.standby"))
	if len(fields) < 2 {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimPrefix(fields[1], "pid="))
	if err != nil || pid == driver || !alive(pid) {
		return 0
	}
	return pid
}

// blocked reports whether a process has its filter of system calls: it has entered the
// sandbox.
func blocked(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && bytes.Contains(text, []byte("Seccomp:\t2"))
}

// The standby becomes the next driver: the same process, with nothing of the epoch before.
func TestStandbyIsPromoted(t *testing.T) {
	w := startStandby(t, nil)
	c := w.dial("default")
	for range 3 {
		waiting := w.standby()
		epoch, pid := w.driver(1)
		require.NotEqual(t, pid, waiting)
		require.NoError(t, addVectors(within(t), w.open(c)))
		kill(t, pid)
		_, next := w.driver(epoch + 1)
		require.Equal(t, waiting, next, "the standby is the driver")
		require.NoError(t, w.Check())
	}
	require.Equal(t, 4, w.log.kinds()["driver.start"])
	require.NoError(t, addVectors(within(t), w.open(c)))
}

// A standby holds no grants: its two links are all that it has of the manager, and nothing
// was sent on them. It has a user of its own and is charged with nothing.
func TestStandbyHoldsNothing(t *testing.T) {
	w := startStandby(t, nil)
	_, driver := w.driver(1)
	before := w.held(ledger.IRQVectors)
	waiting := w.standby()
	require.Equal(t, before, w.held(ledger.IRQVectors), "of one driver")
	require.NotEqual(t, namespaceOf(t, driver), namespaceOf(t, waiting))
	if os.Getuid() == 0 {
		require.NotEqual(t, userOf(t, driver), userOf(t, waiting))
	}
	// Memory, registers, an interrupt: it has its own while it rehearses.
	granted := func(text string) bool {
		return strings.Contains(text, "capgpu-dma") || strings.Contains(text, "capgpu-bar") || strings.Contains(text, "eventfd:[")
	}
	require.Eventually(t, func() bool {
		maps, err := os.ReadFile("/proc/" + strconv.Itoa(waiting) + "/maps")
		require.NoError(t, err)
		return !granted(string(maps)) && !slices.ContainsFunc(descriptorsOf(t, waiting), granted)
	}, patience, time.Millisecond)
	require.Equal(t, 1, w.log.kinds()["driver.start"])
	require.Equal(t, 1, w.log.kinds()["mmio.grant"])
}

func namespaceOf(t *testing.T, pid int) string {
	link, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/user")
	require.NoError(t, err)
	return link
}

func userOf(t *testing.T, pid int) uint32 {
	var st unix.Stat_t
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	require.NoError(t, err)
	require.NoError(t, unix.Stat("/proc/"+strconv.Itoa(pid), &st))
	_, after, _ := strings.Cut(string(text), "Uid:")
	uid, err := strconv.ParseUint(strings.Fields(after)[0], 10, 32)
	require.NoError(t, err)
	return uint32(uid)
}

func descriptorsOf(t *testing.T, pid int) (links []string) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	fds, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, fd := range fds {
		if link, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil {
			links = append(links, link)
		}
	}
	return links
}

// A standby that dies is no death of the device: another one takes its place.
func TestStandbyDies(t *testing.T) {
	w := startStandby(t, func(c *manager.Config) { c.Policy.Device.Respawn.Budget = 0 })
	s := w.open(w.dial("default"))
	for range 3 {
		waiting := w.standby()
		kill(t, waiting)
		require.Eventually(t, func() bool { return !alive(waiting) }, patience, time.Millisecond)
	}
	w.standby()
	epoch, _ := w.driver(1)
	require.EqualValues(t, 1, epoch)
	require.NoError(t, addVectors(within(t), s))
	require.Equal(t, 1, w.log.kinds()["driver.start"])
}

// A driver that dies together with its standby is replaced all the same.
func TestStandbyDiesWithTheDriver(t *testing.T) {
	w := startStandby(t, nil)
	for range 3 {
		waiting := w.standby()
		epoch, pid := w.driver(1)
		kill(t, waiting)
		kill(t, pid)
		w.driver(epoch + 1)
		require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))
	}
}

// A standby of a program that has changed on the disk is not promoted.
func TestStandbyOfAnOldProgram(t *testing.T) {
	path := filepath.Join(shortDir(t), "gpu-mock")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o755))
	install := func() {
		text, err := os.ReadFile(program("gpu-mock"))
		require.NoError(t, err)
		require.NoError(t, proctest.WriteProgram(path+".new", text))
		require.NoError(t, os.Rename(path+".new", path))
	}
	install()
	w := startStandby(t, func(c *manager.Config) { c.DriverPath = path })
	waiting := w.standby()
	epoch, pid := w.driver(1)
	install()
	kill(t, pid)
	_, next := w.driver(epoch + 1)
	require.NotEqual(t, waiting, next)
	require.Eventually(t, func() bool { return !alive(waiting) }, patience, time.Millisecond)
}

// The standby ends with the manager.
func TestStopWithStandby(t *testing.T) {
	w := startStandby(t, nil)
	w.standby()
	w.stop()
	require.Empty(t, children(t))
}

// TestKillsUnderLoad kills the driver again and again while clients work: each finds the next
// one, no completed work is wrong, and nothing is left over.
func TestKillsUnderLoad(t *testing.T) {
	const clients, kills = 3, 12
	w := startStandby(t, nil)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var working sync.WaitGroup
	ends := make(chan error, clients)
	epochs := make([]chan uint64, clients)
	for i := range clients {
		epochs[i] = make(chan uint64, kills+1)
		c := w.dial("default")
		working.Go(func() { ends <- follow(ctx, c, epochs[i]) })
	}
	seen := make([]uint64, clients)
	reached := func(epoch uint64) {
		for i := range clients {
			for seen[i] < epoch {
				select {
				case seen[i] = <-epochs[i]:
				case err := <-ends:
					require.NoError(t, err)
				case <-ctx.Done():
					t.Fatalf("client %d has not come to epoch %d", i, epoch)
				}
			}
		}
	}
	reached(1)
	for range kills {
		w.standby()
		epoch, pid := w.driver(1)
		kill(t, pid)
		reached(epoch + 1)
		require.NoError(t, w.Check())
	}
	cancel()
	working.Wait()
	for range clients {
		if err := <-ends; err != nil && !errors.Is(err, context.Canceled) {
			require.NoError(t, err)
		}
	}
	w.standby()
	require.Eventually(t, func() bool { return len(busyChildren(t)) == 2 }, patience, time.Millisecond, "the driver and its standby")
}

// follow works on a device through all its drivers until ctx ends, and sends each epoch in
// which work was done.
func follow(ctx context.Context, c *client.Conn, epochs chan<- uint64) error {
	for {
		s, err := c.OpenReady(ctx, 0)
		if err != nil {
			return err
		}
		for told := false; err == nil; {
			if err = addVectors(ctx, s); err == nil && !told {
				epochs <- s.Epoch()
				told = true
			}
		}
		_ = s.Close(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, gpuerr.Disconnected), errors.Is(err, gpuerr.DeviceLost):
		default:
			return err
		}
	}
}
