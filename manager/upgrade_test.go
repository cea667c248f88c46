package manager_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/proctest"
	"capgpu/ledger"
	"capgpu/manager"
	"capgpu/outcome"
)

// admin connects an operator.
func (w *world) admin() *client.Admin {
	w.t.Helper()
	require.Equal(w.t, w.AdminSocketPath(), client.AdminSocket(w.SocketPath("default")))
	a, err := client.DialAdmin(within(w.t), w.AdminSocketPath())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { a.Close() })
	return a
}

// counter is a client. Each launch adds one to each element of a buffer: so the buffer tells
// how often work has run.
type counter struct {
	t       *testing.T
	s       *client.Session
	q       *client.Queue
	p       *client.Program
	one, in *client.Buffer
	fence   *client.Fence
	ok      int // launches that succeeded
	value   uint64
	longest time.Duration
}

const counted = 1024

func newCounter(t *testing.T, s *client.Session) *counter {
	t.Helper()
	ctx := within(t)
	c := &counter{t: t, s: s}
	var err error
	c.one, err = s.CreateBuffer(ctx, 4*counted, client.Storage)
	require.NoError(t, err)
	c.in, err = s.CreateBuffer(ctx, 4*counted, client.Storage)
	require.NoError(t, err)
	c.q, err = s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	c.fence, err = s.CreateFence(ctx, 0)
	require.NoError(t, err)
	c.p, err = s.OpenProgram(ctx, "saxpy_f32")
	require.NoError(t, err)
	ones := make([]byte, 4*counted)
	for i := 0; i < len(ones); i += 4 {
		binary.LittleEndian.PutUint32(ones[i:], math.Float32bits(1))
	}
	_, err = c.one.WriteAt(ones, 0)
	require.NoError(t, err)
	t.Cleanup(func() { // whatever happened to the session, this unmaps the buffer
		ctx := within(t)
		_ = c.q.Close(ctx)
		_ = c.one.Close(ctx)
		_ = c.in.Close(ctx)
	})
	return c
}

// round submits n launches and a signal, and waits for the signal.
func (c *counter) round(n int) error {
	began := time.Now()
	inline := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1))
	for range n {
		if _, err := c.q.PushLaunch(&client.Launch{Program: c.p, Bindings: []client.Binding{{Buffer: c.one}, {Buffer: c.in}}, Inline: inline}); err != nil {
			return err
		}
	}
	c.value++
	if _, err := c.q.PushSignal(c.fence, c.value); err != nil {
		return err
	}
	if err := c.q.Flush(); err != nil {
		return err
	}
	how, err := c.fence.Wait(context.Background(), c.value)
	if err != nil {
		return err
	}
	if how.Kind != outcome.OK {
		return fmt.Errorf("a round ended %v", how)
	}
	out := make([]client.Completion, n+1)
	for got := 0; got < n+1; {
		k, err := c.q.Completions(context.Background(), out[got:])
		if err != nil {
			return err
		}
		for _, x := range out[got : got+k] {
			if x.Outcome.Kind != outcome.OK {
				return fmt.Errorf("an entry ended %v: %w", x.Outcome, x.Err)
			}
		}
		got += k
	}
	c.ok += n
	c.longest = max(c.longest, time.Since(began))
	return nil
}

// check compares the work that ran with the reported outcomes.
func (c *counter) check() {
	c.t.Helper()
	sum := make([]byte, 4*counted)
	_, err := c.in.ReadAt(sum, 0)
	require.NoError(c.t, err)
	for i := 0; i < len(sum); i += 4 {
		require.Equal(c.t, float32(c.ok), math.Float32frombits(binary.LittleEndian.Uint32(sum[i:])), "element %d", i/4)
	}
}

// newestDriver returns the process of the serving driver.
func (w *world) newestDriver() (pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		var epoch, generation uint64
		if n, _ := fmt.Sscanf(line, "capgpu: device mock0 ready (epoch %d, driver pid %d)", &epoch, &pid); n == 2 {
			continue
		}
		fmt.Sscanf(line, "capgpu: device mock0 has another driver (epoch %d, generation %d, driver pid %d)", &epoch, &generation, &pid)
	}
	return pid
}

// The driver is replaced three times under load: sessions, buffers and fences continue,
// nothing fails, no work runs twice, no charges change, and waits go on.
func TestUpgradeDuringTraffic(t *testing.T) {
	w := start(t, nil)
	a := w.admin()
	conn := w.dial("default")
	s := w.open(conn)
	_, first := w.driver(1)
	weak, err := s.Restrict(within(t), client.Policy{Facet: client.FacetProgram})
	require.NoError(t, err)
	counters := []*counter{newCounter(t, s), newCounter(t, weak), newCounter(t, w.open(w.dial("default")))}
	open, err := s.CreateFence(within(t), 0)
	require.NoError(t, err)
	waited := make(chan error, 1)
	go func() {
		how, err := open.Wait(context.Background(), 1)
		if err == nil && how.Kind != outcome.OK {
			err = fmt.Errorf("the fence ended %v", how)
		}
		waited <- err
	}()
	memory := w.held(ledger.DeviceMemory)

	stop := make(chan struct{})
	var traffic sync.WaitGroup
	for _, c := range counters {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := c.round(20); err != nil {
					t.Errorf("during an upgrade: %v", err)
					return
				}
			}
		})
	}
	for i := range 3 {
		u, err := a.Upgrade(within(t), "mock0")
		require.NoError(t, err)
		require.EqualValues(t, 1, u.Epoch)
		require.EqualValues(t, i+2, u.Generation)
		require.EqualValues(t, 3, u.Sessions)
		t.Logf("upgrade %d: nothing was begun for %v", i+1, u.Pause)
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	traffic.Wait()
	require.True(t, isDead(first))
	require.Equal(t, memory, w.held(ledger.DeviceMemory))
	require.NoError(t, w.Check())
	for _, c := range counters {
		require.Positive(t, c.ok)
		c.check()
	}
	select {
	case err := <-waited:
		require.Fail(t, "a wait ended", "%v", err)
	default:
	}
	require.NoError(t, open.Signal(within(t), 1))
	require.NoError(t, <-waited)
	// New objects behave as before, and so does the end.
	require.NoError(t, addVectors(within(t), s))
	devices, err := conn.Devices(within(t))
	require.NoError(t, err)
	require.EqualValues(t, 1, devices[0].Epoch)
	require.EqualValues(t, 4, devices[0].Generation)
	require.NoError(t, s.Close(within(t)))
	require.Equal(t, 3, w.log.kinds()["driver.successor"])
	require.Equal(t, 3, w.log.kinds()["driver.upgrade"])
	require.Zero(t, w.log.kinds()["session.lost"])
}

// Clients that open and close sessions all the time, one below the other, do not keep the
// driver from being replaced.
func TestUpgradeDuringChurn(t *testing.T) {
	w := start(t, nil)
	a := w.admin()
	w.driver(1)
	ctx, stop := context.WithCancel(context.Background())
	var churning sync.WaitGroup
	defer churning.Wait()
	defer stop()
	for i := range 3 {
		conn := w.dial("default")
		churning.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				s, err := conn.Open(ctx, 0)
				if err != nil {
					continue // busy, perhaps
				}
				for range 3 {
					if child, err := s.Restrict(ctx, client.Policy{}); err == nil && n%2 == 0 {
						_ = child.Close(ctx)
					}
				}
				_ = s.Close(context.Background()) // closed ones below linger, so that their clients can ask for the reason
			}
		})
	}
	for range 5 {
		_, err := a.Upgrade(within(t), "mock0")
		require.NoError(t, err)
	}
	stop()
	churning.Wait()
	require.NoError(t, w.Check())
}

// linkedDriver returns a path of the driver's program that can be switched to another one.
func linkedDriver(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gpu-mock")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o755))
	require.NoError(t, os.Symlink(program("gpu-mock"), path))
	return path
}

// A driver that dies while its successor does not become ready is replaced as any other.
func TestDriverDiesBeforeItsSuccessorIsReady(t *testing.T) {
	path := linkedDriver(t)
	w := start(t, func(c *manager.Config) {
		c.DriverPath = path
		c.ReadyTimeout = 3 * patience
	})
	_, pid := w.driver(1)
	a := w.admin()
	require.NoError(t, os.Remove(path))
	deaf, err := os.ReadFile("/usr/bin/yes") // it writes nothing to its links
	require.NoError(t, err)
	require.NoError(t, proctest.WriteProgram(path, deaf))
	failed := make(chan error, 1)
	go func() {
		_, err := a.Upgrade(within(t), "mock0")
		failed <- err
	}()
	require.Eventually(t, func() bool { return w.log.kinds()["driver.successor"] == 1 }, patience, time.Millisecond)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink(program("gpu-mock"), path))
	began := time.Now()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.ErrorIs(t, <-failed, gpuerr.Disconnected)
	w.driver(2)
	require.Less(t, time.Since(began), patience)
}

// A successor of another version is refused with both versions named. One that dies, or is no
// driver, changes nothing either.
func TestUpgradeRollsBack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gpu-mock")
	install := func(from string) {
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, proctest.WriteProgram(path+".new", b))
		require.NoError(t, os.Rename(path+".new", path))
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	install(program("gpu-mock"))
	other := filepath.Join(dir, "other")
	cmd := exec.Command("go", "build", "-o", other, "-ldflags", "-X main.stateVersion=99", "capgpu/cmd/gpu-mock")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	w := start(t, func(c *manager.Config) { c.DriverPath = path })
	a := w.admin()
	c := newCounter(t, w.open(w.dial("default")))
	require.NoError(t, c.round(5))
	_, pid := w.driver(1)

	install(other)
	_, err = a.Upgrade(within(t), "mock0")
	require.ErrorIs(t, err, gpuerr.Version)
	require.ErrorContains(t, err, "have=99 want=")
	require.NoError(t, c.round(5))
	install("/bin/false")
	_, err = a.Upgrade(within(t), "mock0")
	require.Error(t, err)
	require.NoError(t, c.round(5))
	_, err = a.Upgrade(within(t), "mock7")
	require.ErrorIs(t, err, gpuerr.NoDevice)
	install(program("gpu-mock"))
	w.log.setRefuse(gpuerr.New(gpuerr.Quota, "the disk is full"))
	_, err = a.Upgrade(within(t), "mock0")
	require.ErrorIs(t, err, gpuerr.IO)
	w.log.setRefuse(nil)
	require.NoError(t, c.round(5))
	require.Equal(t, pid, w.newestDriver())
	u, err := a.Upgrade(within(t), "mock0")
	require.NoError(t, err)
	require.EqualValues(t, 2, u.Generation)
	require.NoError(t, c.round(5))
	c.check()
	require.NoError(t, w.Check())

	// The death of a driver has the usual effect, whichever driver it is.
	require.NoError(t, syscall.Kill(w.newestDriver(), syscall.SIGKILL))
	require.Error(t, c.round(5))
	w.driver(2)
	require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))
}
