package manager_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// Twenty deaths of the driver while clients work: each client sees a typed
// error, the grants come back whole every time, and the next driver serves.
func TestDriverKilledWhileClientsWork(t *testing.T) {
	const deaths, clients = 20, 3
	w := start(t, nil)
	stop := make(chan struct{})
	var working sync.WaitGroup
	var worked [clients]atomic.Uint64
	total := func() (n uint64) {
		for i := range worked {
			n += worked[i].Load()
		}
		return n
	}
	for i := range clients {
		c := w.dial("default")
		working.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := c.Open(within(t), 0)
				if err == nil {
					for err == nil {
						if err = addVectors(within(t), s); err == nil {
							worked[i].Add(1)
						}
						select {
						case <-stop:
							s.Close(within(t))
							return
						default:
						}
					}
				}
				if code := gpuerr.CodeOf(err).Class(); code != gpuerr.ClassDisconnected && code != gpuerr.ClassOverloaded {
					t.Errorf("a client saw %v", err)
					return
				}
				if s != nil {
					s.Close(within(t)) // of a dead driver: frees the local part
				}
				if _, err := c.NextStateFor(within(t), 0, 0, time.Second); err != nil {
					t.Errorf("NextState: %v", err)
					return
				}
			}
		})
	}
	for i := range deaths {
		epoch, pid := w.driver(uint64(i + 1))
		enough := total() + uint64(i%4)*3 // some deaths at once, some in the middle of work
		require.Eventually(t, func() bool { return total() >= enough }, patience, 100*time.Microsecond)
		kill(t, pid)
		w.driver(epoch + 1)
		require.NoError(t, w.Check())
	}
	close(stop)
	working.Wait()
	for i := range worked {
		require.NotZero(t, worked[i].Load(), "client %d never worked", i)
	}
	require.Len(t, busyChildren(t), 1, "no zombie, and one driver")
	require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))
}

func TestDriverDeathRevokesItsMemory(t *testing.T) {
	// The next driver comes late, so that the rest of the first is visible.
	w := start(t, func(c *manager.Config) {
		c.Policy.Device.Respawn.FirstDelay, c.Policy.Device.Respawn.MaxDelay = time.Minute, time.Minute
	})
	c := w.dial("default")
	s := w.open(c)
	b, err := s.CreateBuffer(within(t), 1<<20, client.Storage)
	require.NoError(t, err)
	mem, err := b.Map()
	require.NoError(t, err)
	for i := range mem {
		mem[i] = 0x5a
	}
	require.NotZero(t, w.held(ledger.DeviceMemory))
	_, pid := w.driver(1)
	died := time.Now()
	kill(t, pid)
	<-s.Done()
	require.Less(t, time.Since(died), patience, "not when the next driver comes")
	require.ErrorIs(t, s.Err(), gpuerr.Disconnected)
	require.Eventually(t, func() bool {
		return w.held(ledger.DeviceMemory)+w.held(ledger.IOVAEntries)+w.held(ledger.IRQVectors)+w.held(ledger.MMIOBytes) == 0
	}, patience, time.Millisecond)
	require.NoError(t, w.Check())
	for i := range mem {
		if mem[i] != 0 {
			t.Fatalf("byte %d is still there after the driver's death", i)
		}
	}
	_, err = c.Open(within(t), 0)
	require.ErrorIs(t, err, gpuerr.Busy)
	devices, err := c.Devices(within(t))
	require.NoError(t, err)
	require.Equal(t, client.Recovering, devices[0].State)
	require.NoError(t, b.Unmap())
	s.Close(within(t))
}

// The log has the end of every session: from the driver if it can write, else from the
// manager.
func TestEndOfEachSessionIsRecorded(t *testing.T) {
	w := start(t, nil)
	def, limited := w.dial("default"), w.dial("limited")
	closed := w.open(def)
	left := []*client.Session{w.open(def), w.open(def), w.open(limited)}
	require.NoError(t, closed.Close(within(t)))
	require.Eventually(t, func() bool { return w.log.kinds()["session.close"] == 1 }, patience, time.Millisecond)
	_, pid := w.driver(1)
	kill(t, pid)
	w.driver(2)
	for _, s := range left {
		<-s.Done()
		s.Close(within(t))
	}
	w.open(def) // the driver closes it when it shuts down
	w.stop()

	records, err := w.log.Snapshot(0, 1<<20)
	require.NoError(t, err)
	attached := map[string]string{} // session of the manager → of the driver
	var ends []string
	for _, r := range records {
		switch r.Kind {
		case "session.attach":
			attached[strings.Fields(r.Detail)[2]] = ""
		case "session.open":
			require.Equal(t, "@mock0", r.Tenant)
			f := strings.Fields(r.Detail)
			attached[strings.Replace(f[2], "attach", "session", 1)] = f[0] + " " + f[1]
		case "session.lost", "driver.end":
			before, cause, _ := strings.Cut(r.Detail, " cause=")
			ends = append(ends, strings.Join(strings.Fields(r.Kind+" "+r.Tenant+" "+before), " "))
			if strings.Contains(before, "epoch=1") {
				require.Contains(t, cause, "killed")
			}
		case "session.close":
			require.Contains(t, r.Detail, "tenant=default")
			ends = append(ends, "session.close")
		}
	}
	require.Equal(t, "tenant=default session=1", attached["session=1"])
	require.Equal(t, []string{
		"session.close",
		"session.lost default mock0 epoch=1 sessions=2",
		"session.lost limited mock0 epoch=1 sessions=1",
		ends[3],
		"session.close",
		ends[5],
	}, ends)
	require.Regexp(t, `^driver.end mock0 epoch=1 freed=\d+ kept=0 windows=1 vectors=2 sessions=3$`, ends[3])
	require.Regexp(t, `^driver.end mock0 epoch=2 freed=\d+ kept=0 windows=1 vectors=2 sessions=0$`, ends[5])
}

func TestSilentDriverIsReplaced(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.PingInterval, c.PingTimeout = 20*time.Millisecond, 700*time.Millisecond })
	epoch, pid := w.driver(1)
	for unix.Kill(pid, unix.SIGSTOP) != nil { // it was slow, and is already replaced
		epoch, pid = w.driver(epoch + 1)
	}
	epoch, _ = w.driver(epoch + 1)
	require.True(t, isDead(pid))
	c := w.dial("default")
	for {
		s, err := c.OpenReady(within(t), 0)
		if err == nil {
			err = addVectors(within(t), s)
		}
		if err == nil {
			return
		}
		t.Logf("epoch %d: %v", epoch, err)
		epoch, _ = w.driver(epoch + 1) // it was as slow
	}
}

// A client that asks a driver which does not answer gets an error, and may ask again.
func TestSilentDriverIsBusy(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.PingInterval, c.PingTimeout = time.Hour, time.Second })
	c := w.dial("default")
	w.open(c)
	_, pid := w.driver(1)
	_, err := c.Status(within(t), 0) // earlier requests are answered
	require.NoError(t, err)
	freeze(t, pid)
	_, err = c.Status(within(t), 0)
	require.Equal(t, gpuerr.Busy, gpuerr.CodeOf(err), "%v", err)
	_, err = c.Open(within(t), 0)
	require.Equal(t, gpuerr.Busy, gpuerr.CodeOf(err), "%v", err)
	require.NoError(t, unix.Kill(pid, unix.SIGCONT))
	for gpuerr.CodeOf(err) == gpuerr.Busy {
		_, err = c.Status(within(t), 0)
	}
	require.NoError(t, err)
}

// A tenant that makes drivers die after Ready cannot wedge the device.
func TestDeathsAfterReadyNeverWedge(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.Policy.Device.Respawn.Budget = 0 })
	for range 4 {
		epoch, pid := w.driver(1)
		kill(t, pid)
		w.driver(epoch + 1)
	}
	require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))
}

// A driver that does not even stop is killed when its time is up.
func TestStopWithSilentDriver(t *testing.T) {
	w := start(t, nil)
	c := w.dial("default")
	s := w.open(c)
	_, pid := w.driver(1)
	freeze(t, pid)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.NoError(t, w.Close(ctx))
	require.Empty(t, children(t))
	<-s.Done()
	<-c.Done()
	require.NoFileExists(t, w.SocketPath("default"))
}

// script makes a program that a driver's user may read.
func script(t *testing.T, lines string) string {
	t.Helper()
	dir := shortDir(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "bad-driver")
	require.NoError(t, proctest.WriteProgram(path, []byte("#!/bin/sh\n"+lines)))
	return path
}

func TestWedged(t *testing.T) {
	bad := script(t, "echo no coffee left >&2\nexit 3\n")
	w := start(t, func(c *manager.Config) {
		c.DriverPath = bad
		c.Policy.Device.Respawn.Budget = 3
	})
	c := w.dial("default")
	var st client.State
	for st.State != client.Wedged {
		var err error
		st, err = c.NextState(within(t), 0, st.Epoch)
		require.NoError(t, err)
	}
	require.Contains(t, st.Cause, "more than 3 deaths before ready")
	_, err := c.Open(within(t), 0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	require.Contains(t, err.Error(), "no coffee left")
	devices, err := c.Devices(within(t))
	require.NoError(t, err)
	require.Equal(t, client.Wedged, devices[0].State)
	require.Zero(t, w.held(ledger.IRQVectors))
	require.Equal(t, 4, w.log.kinds()["driver.start"])
	noDrivers(t)
}

// A driver that does not send Ready in time is replaced.
func TestDriverNeverReady(t *testing.T) {
	bad := script(t, "exec sleep 1000\n")
	w := start(t, func(c *manager.Config) {
		c.DriverPath, c.ReadyTimeout = bad, 100*time.Millisecond
		c.Policy.Device.Respawn.Budget = 1
	})
	c := w.dial("default")
	var st client.State
	for st.State != client.Wedged {
		var err error
		st, err = c.NextState(within(t), 0, st.Epoch)
		require.NoError(t, err)
	}
	require.Contains(t, st.Cause, "not ready after 100ms")
}

// A killed manager's children die with it, and the next manager starts beside the files that
// it has left.
func TestManagerKilled(t *testing.T) {
	if os.Getenv("CAPGPU_TEST_MANAGER") != "" {
		t.Skip("this process is the manager")
	}
	run := filepath.Join(shortDir(t), "run")
	cmd := exec.Command(os.Args[0], "-test.run=^TestManagerProcess$", "-test.v")
	cmd.Env = append(os.Environ(), "CAPGPU_TEST_MANAGER="+run, "CAPGPU_TEST_PROGRAMS="+programs,
		"TMPDIR="+filepath.Dir(run)) // the test's own cleanup removes the rest
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	var driver int
	require.Eventually(t, func() bool {
		pid, err := os.ReadFile(run + ".driver")
		if err != nil {
			return false
		}
		driver, err = strconv.Atoi(string(pid))
		return err == nil
	}, patience, time.Millisecond)
	c, err := client.Dial(within(t), filepath.Join(run, "default.sock"))
	require.NoError(t, err)
	defer c.Close()
	s, err := c.Open(within(t), 0)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	<-s.Done()
	if !errors.Is(s.Err(), gpuerr.DeviceLost) { // sent by a driver that sees its link go before it dies
		require.ErrorIs(t, s.Err(), gpuerr.Disconnected)
	}
	require.Eventually(t, func() bool { return !alive(driver) }, patience, time.Millisecond, "the driver outlived its manager")

	// Its sockets are still there, and no process listens.
	require.FileExists(t, filepath.Join(run, "default.sock"))
	w := start(t, func(c *manager.Config) { c.RunDir = run })
	require.Contains(t, w.log.texts(), "pid="+strconv.Itoa(cmd.Process.Pid)+" sockets="+strconv.Itoa(2*len(manager.DevPolicy().Tenants)+1)+" hidden=0")
	require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))
	_, err = manager.Start(manager.Config{
		Policy: manager.DevPolicy(), RunDir: run, Audit: &memoryLog{},
		DriverPath: program("gpu-mock"), GatePath: program("gpu-gate"),
	})
	require.ErrorContains(t, err, "another device-manager runs in")
}

// TestManagerProcess is the manager that TestManagerKilled kills.
func TestManagerProcess(t *testing.T) {
	run := os.Getenv("CAPGPU_TEST_MANAGER")
	if run == "" {
		t.Skip("started by TestManagerKilled")
	}
	w := start(t, func(c *manager.Config) { c.RunDir = run })
	_, pid := w.driver(1)
	require.NoError(t, os.WriteFile(run+".driver", []byte(strconv.Itoa(pid)), 0o600))
	select {} // until killed
}
