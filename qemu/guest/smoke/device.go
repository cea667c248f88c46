package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/qemu/guest/tap"
)

// pollEvery is the interval of looking at a state that sends no event.
const pollEvery = 20 * time.Millisecond

func describeGuest() string {
	var name unix.Utsname
	var info unix.Sysinfo_t
	_ = unix.Uname(&name)
	_ = unix.Sysinfo(&info)
	return fmt.Sprintf("# Linux %s, %d processors, %d MiB of memory",
		unix.ByteSliceToString(name.Release[:]), runtime.NumCPU(), info.Totalram*uint64(info.Unit)>>20)
}

// checkDevice: the manager is up, its device becomes ready, and says so.
func (s *smoke) checkDevice() {
	s.check("tenant socket answers", func(c *check) {
		for {
			conn, err := client.Dial(c.Ctx, s.socket(tenant))
			if err == nil {
				s.conn = conn
				break
			}
			// The manager has just been started; its socket is not there yet.
			if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
				c.Fatalf("dial: %v", err)
			}
			select {
			case <-c.Ctx.Done():
				c.Fatalf("dial: %v", err)
			case <-time.After(pollEvery):
			}
		}
		c.That(s.conn.Tenant() == tenant, "taken for tenant %q", s.conn.Tenant())
		c.Say("tenant %s", s.conn.Tenant())
	})
	if s.suite.Failed > 0 {
		return
	}

	s.check("lifecycle tells of a ready device", func(c *check) {
		state := s.waitReady(c, 0)
		s.epoch = state.Epoch
		c.That(s.epoch == 1, "the first driver has epoch %d", s.epoch)
		devices := tap.Get[[]client.DeviceInfo](c.Check, "list devices")(s.conn.Devices(c.Ctx))
		c.That(len(devices) == 1, "%d devices", len(devices))
		d := devices[0]
		c.That(d.State == client.Ready && d.Epoch == s.epoch, "listed as %v in epoch %d", d.State, d.Epoch)
		c.Say("%s, backend %s, epoch %d, %d MiB", d.Name, d.Backend, d.Epoch, d.MemoryBytes>>20)
		s.driver = findDriver(c)
	})
}

// waitReady waits until the device is ready in an epoch greater than the given
// one, and returns that state.
func (s *smoke) waitReady(c *check, after uint64) client.State {
	for {
		state, err := s.conn.NextState(c.Ctx, 0, after)
		c.Must(err, "wait for the next state of the device")
		switch {
		case state.State == client.Ready && state.Epoch > after:
			return state
		case state.State == client.Wedged:
			c.Fatalf("the device is wedged: %s", state.Cause)
		}
		// Any state but "ready in epoch after" is reported at once.
		select {
		case <-c.Ctx.Done():
			c.Fatalf("the device stays %v", state.State)
		case <-time.After(pollEvery):
		}
	}
}

// findDriver returns the process id of the one gpu-mock that has the function's
// registers. Beside it there may be a standby, which has none.
func findDriver(c *check) int {
	for {
		var pids []int
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			comm, err := os.ReadFile(dir + "/comm")
			if err != nil || strings.TrimSpace(string(comm)) != "gpu-mock" {
				continue
			}
			if maps, err := os.ReadFile(dir + "/maps"); err == nil && bytes.Contains(maps, []byte(registersName)) {
				pid, _ := strconv.Atoi(filepath.Base(dir))
				pids = append(pids, pid)
			}
		}
		if len(pids) == 1 {
			return pids[0]
		}
		select {
		case <-c.Ctx.Done():
			c.Fatalf("%d driver processes: %v", len(pids), pids)
		case <-time.After(pollEvery):
		}
	}
}

// registersName is that of the memory which stands for the fake function's registers.
const registersName = "/memfd:capgpu-bar"

// anonymousKiB returns the size of a process's own memory, without shared memory.
func anonymousKiB(c *check, pid int) int {
	status := tap.Get[[]byte](c.Check, "read the driver's memory use")(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			c.Must(err, "parse RssAnon")
			return kib
		}
	}
	c.Fatalf("no RssAnon in /proc/%d/status", pid)
	return 0
}

// open opens a session and closes it when the check ends.
func (c *check) open() (s *client.Session, done func()) {
	s = tap.Get[*client.Session](c.Check, "open a session")(c.conn.Open(c.Ctx, 0))
	return s, func() {
		ctx, cancel := context.WithTimeout(context.Background(), tap.Bound)
		defer cancel()
		c.Must(s.Close(ctx), "close the session")
	}
}

// sameDriver wants that the driver is the process it was, in the epoch it was.
func (s *smoke) sameDriver(c *check) {
	c.That(findDriver(c) == s.driver, "the driver is another process now")
	state := tap.Get[client.State](c.Check, "ask for the state")(s.conn.NextStateFor(c.Ctx, 0, s.epoch, 0))
	c.That(state.State == client.Ready && state.Epoch == s.epoch, "the device is %v in epoch %d", state.State, state.Epoch)
}
