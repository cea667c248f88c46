package manager_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/iommu"
	"capgpu/ledger"
	"capgpu/manager"
)

// hold is the main function of a process that traces another one: meanwhile the other's
// parent cannot reap it (wait(2): a zombie is first its tracer's). It lets go when its input
// ends.
func hold(arg string) int {
	runtime.LockOSThread()
	pid, err := strconv.Atoi(arg)
	if err == nil {
		err = unix.PtraceSeize(pid)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// holdProcess keeps a process from being reaped until letGo is called.
func holdProcess(t *testing.T, pid int) (letGo func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "hold", strconv.Itoa(pid))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 100)
	n, err := out.Read(line)
	require.NoError(t, err)
	if string(line[:n]) != "held\n" {
		in.Close()
		cmd.Wait()
		t.Skipf("this host lets nobody trace a process: %s", line[:n])
	}
	return func() {
		in.Close()
		cmd.Wait()
	}
}

// A driver that the kernel cannot end keeps no grants, and does not keep the manager from
// stopping.
func TestDriverThatCannotBeReaped(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.ReapTimeout = 300 * time.Millisecond })
	c := w.dial("default")
	s := w.open(c)
	b, err := s.CreateBuffer(within(t), 1<<20, client.Storage)
	require.NoError(t, err)
	mem, err := b.Map()
	require.NoError(t, err)
	mem[0] = 0x5a
	epoch, pid := w.driver(1)
	letGo := holdProcess(t, pid)
	kill(t, pid)

	var st client.State
	for st.State != client.Wedged {
		st, err = c.NextState(within(t), 0, epoch)
		require.NoError(t, err)
		epoch = st.Epoch
	}
	require.Contains(t, st.Cause, fmt.Sprintf("its process %d cannot be reaped after 300ms", pid))
	require.Zero(t, w.held(ledger.DeviceMemory)+w.held(ledger.IOVAEntries)+w.held(ledger.IRQVectors)+w.held(ledger.MMIOBytes))
	require.Zero(t, mem[0], "its memory is scrubbed")
	require.NoError(t, w.Check())
	require.Equal(t, 1, w.log.kinds()["driver.end"])
	require.NoError(t, b.Unmap())
	s.Close(within(t))

	w.expectRemains = "cannot be reaped"
	w.stop()
	letGo()
	require.Eventually(t, func() bool { return len(children(t)) == 0 }, patience, time.Millisecond)
}

// The same for a driver that cannot be ended while the manager stops.
func TestStopWithDriverThatCannotBeReaped(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.ReapTimeout = 300 * time.Millisecond })
	_, pid := w.driver(1)
	letGo := holdProcess(t, pid)
	w.expectRemains = "cannot be reaped"
	began := time.Now()
	w.stop()
	require.Less(t, time.Since(began), patience/2)
	letGo()
	require.Eventually(t, func() bool { return len(children(t)) == 0 }, patience, time.Millisecond)
}

// A gate that cannot be ended does not keep the manager from stopping either.
func TestStopWithGateThatCannotBeReaped(t *testing.T) {
	w := start(t, nil)
	w.driver(1)
	capnp := w.begun("default")
	defer capnp.Close()
	require.Eventually(t, func() bool { return len(gates(t)) == 1 }, patience, time.Millisecond)
	letGo := holdProcess(t, gates(t)[0])
	w.expectRemains = `connections of tenant "default" did not end`
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	began := time.Now()
	require.ErrorContains(t, w.Close(ctx), w.expectRemains)
	require.Less(t, time.Since(began), patience/2)
	letGo()
	require.Eventually(t, func() bool { return len(children(t)) == 0 }, patience, time.Millisecond)
}

// If the kernel does not return from stopping a function, only that function is lost.
func TestQuiesceThatHangs(t *testing.T) {
	b := newBus(t, addressA, addressB)
	f := b.functions[addressA]
	w := startOn(t, b, func(c *manager.Config) { c.ReapTimeout = 200 * time.Millisecond })
	_, pid := w.driverOf("edu0", 1)
	c := w.dial("default")
	s, _, mem := w.dirty(c, 0)
	hold := make(chan struct{})
	f.script(func() {
		f.quiesce = func() error {
			<-hold
			return nil
		}
	})
	kill(t, pid)
	st := w.await(c, 0, client.Wedged)
	require.Contains(t, st.Cause, "could not be stopped: the kernel has not come back")
	require.EqualValues(t, 0x5a, mem[0], "its pages are nobody else's")
	require.Empty(t, f.domain.Mappings())
	require.Equal(t, client.Ready, w.await(c, 1, client.Ready).State, "the other function goes on")
	s.Close(within(t))
	close(hold)
	w.stop()
	require.Zero(t, mem[0])
}

// It does not keep the manager from stopping either.
func TestStopWithKernelThatHangs(t *testing.T) {
	b := newBus(t, addressA)
	f := b.functions[addressA]
	w := startOn(t, b, nil)
	_, pid := w.driverOf("edu0", 1)
	s, _, _ := w.dirty(w.dial("default"), 0)
	hold, held := make(chan struct{}), make(chan struct{})
	f.domain.Fail(func(op iommu.Op) error {
		if op.Kind == iommu.OpUnmap {
			close(held)
			<-hold
		}
		return nil
	})
	kill(t, pid)
	<-held
	s.Close(within(t))
	w.expectRemains = "edu0 is left behind"
	w.stop()
	close(hold)
	require.Eventually(t, func() bool { return w.held(ledger.DeviceMemory) == 0 }, patience, time.Millisecond)
	require.NoError(t, f.Close())
}
