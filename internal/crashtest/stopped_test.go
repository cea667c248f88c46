package crashtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/crashpoint"
	"capgpu/manager"
)

// A gate that stands still is its client's own loss: others work, and the manager
// stops in order.
func TestStoppedGateHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := newStack(t, options{})
	s.start(crashpoint.Point{})
	s.ready()
	rng := rand.New(rand.NewPCG(1, 13))
	victim := s.load(rng, 0, 1)
	victim.works(t, 1)
	gates := s.gates()
	require.Len(t, gates, 1)
	require.NoError(t, unix.Kill(gates[0], unix.SIGSTOP))
	l := s.load(rng, 2, 1)
	l.works(t, 2)
	s.killDriver()
	l.works(t, 2)
	l.end(t)
	s.stop() // the gate among them
	victim.end(t)
}

// Clients wait for a manager that stands still: sessions work on, no client gets a false
// answer, and when the manager continues all requests do.
func TestStoppedManagerIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStack(t, options{})
	s.start(crashpoint.Point{})
	s.ready()
	l := s.load(rand.New(rand.NewPCG(1, 14)), 2, 1)
	l.works(t, 2)
	driver := s.driver()
	require.NoError(t, s.cmd.Process.Signal(unix.SIGSTOP))
	time.Sleep(time.Second)
	require.NoError(t, s.cmd.Process.Signal(unix.SIGCONT))
	l.works(t, 4)
	l.end(t)
	s.atRest()
	require.Equal(t, driver, s.driver(), "the driver was replaced for no reason of its own")
	s.stop()
}

// A manager crashes at its start, and the next one, too, and so on: the one that comes up
// finds the leftovers of all of them, and reports each.
func TestCrashAfterCrash(t *testing.T) {
	t.Parallel()
	s := newStack(t, options{})
	s.start(crashpoint.Point{Label: "manager.attach.sent", Pass: 3})
	l := s.load(rand.New(rand.NewPCG(1, 26)), 2, 0)
	eventually(t, func() bool { return !s.running() }, "the manager does not crash")
	for _, label := range []string{"manager.start.locked", "manager.listen.made", "manager.start.recorded", "manager.start.devices",
		"manager.start.sockets", "manager.spawn.cell", "manager.spawn.started", "audit.append.half"} {
		s.start(crashpoint.Point{Label: label, Pass: 1})
		eventually(t, func() bool { return !s.running() }, "the manager does not come by %s", label)
		require.Equal(t, crashpoint.Status, s.cmd.ProcessState.ExitCode(), label)
	}
	crashed := slices.Clone(s.pids)
	s.start(crashpoint.Point{})
	l.works(t, 4)
	l.end(t)
	s.atRest()
	lines := strings.Join(s.records(), "\n")
	for i, pid := range crashed {
		require.Contains(t, lines+"\n", fmt.Sprintf("manager.crashed  pid=%d", pid), "crash %d", i)
	}
	s.pids = crashed
	require.Empty(t, s.cgroups(), "cgroups outlive their manager")
	require.ElementsMatch(t, servedSockets, s.sockets())
	s.stop()
}

// A machine that stands still for longer than the manager's timeouts, such as a paused
// virtual machine, continues undisturbed: its driver was not silent.
func TestStoppedMachineGoesOn(t *testing.T) {
	t.Parallel()
	s := newStack(t, options{})
	s.start(crashpoint.Point{})
	s.ready()
	l := s.load(rand.New(rand.NewPCG(1, 15)), 2, 1)
	l.works(t, 2)
	driver := s.driver()
	require.NoError(t, unix.Kill(driver, unix.SIGSTOP))
	time.Sleep(manager.DefaultPingInterval + 200*time.Millisecond) // it was asked, and has not answered
	require.NoError(t, s.cmd.Process.Signal(unix.SIGSTOP))
	time.Sleep(manager.DefaultPingTimeout + time.Second)
	require.NoError(t, s.cmd.Process.Signal(unix.SIGCONT))
	time.Sleep(100 * time.Millisecond) // the manager's time is up, and it has no answer
	require.NoError(t, unix.Kill(driver, unix.SIGCONT))
	l.works(t, 4)
	l.end(t)
	s.atRest()
	require.Equal(t, driver, s.driver(), "the driver was replaced for no reason of its own")
	s.stop()
}
