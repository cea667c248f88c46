package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/crashpoint"
)

// runClient is a client in a process of its own: it works until SIGTERM, prints each fault as
// soon as it sees it, and exits with 1 if there was any.
func runClient(socket, seed string) int {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		fmt.Println("FAULT", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	w := &worker{tally: &tally{say: func(f string) { fmt.Println("FAULT", f) }}, socket: socket, rng: rand.New(rand.NewPCG(n, 0))}
	w.run(ctx)
	for _, f := range w.awake() {
		w.fault("%s", f)
	}
	if len(w.faults()) > 0 {
		return 1
	}
	return 0
}

// clientProcess is one of these.
type clientProcess struct {
	cmd   *exec.Cmd
	said  *output
	ended chan struct{}
}

func (s *stack) client(rng *rand.Rand) *clientProcess {
	c := &clientProcess{said: &output{}, ended: make(chan struct{})}
	c.cmd = exec.Command(os.Args[0], "client", s.socket(), strconv.FormatUint(rng.Uint64(), 10))
	c.cmd.Stdout, c.cmd.Stderr = c.said, c.said
	require.NoError(s.t, c.cmd.Start())
	s.t.Cleanup(func() { c.end(unix.SIGKILL) })
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait()
	}()
	return c
}

// end sends a signal and waits.
func (c *clientProcess) end(s unix.Signal) bool {
	_ = c.cmd.Process.Signal(s)
	select {
	case <-c.ended:
		return true
	case <-time.After(2 * callBound):
		return false
	}
}

// shortKills is how many kills the short form has.
const shortKills = 8

// TestKills kills drivers, gates and clients at random moments: no client gets a false
// answer, all that live work again after each kill, and nothing is left.
func TestKills(t *testing.T) {
	t.Parallel()
	kills := shortKills
	if n, err := strconv.Atoi(os.Getenv("CAPGPU_KILLS")); err == nil {
		kills = n
	}
	rng := rand.New(rand.NewPCG(seedOf(t), 3))
	s := newStack(t, options{})
	s.start(crashpoint.Point{})
	s.ready()
	l := s.load(rng, 2, 1)
	l.works(t, 2)
	others := []*clientProcess{s.client(rng), s.client(rng)}
	var count struct{ drivers, gates, clients int }
	var slowest, total time.Duration
	for recovered := 0; recovered < kills; {
		what, wait := rng.IntN(10), time.Duration(rng.IntN(20_000))*time.Microsecond
		which := rng.IntN(1 << 20)
		time.Sleep(wait)
		switch {
		case what < 8:
			drivers := processes(s.program("gpu-mock")) // one that works, and one that waits to take over
			if len(drivers) == 0 {
				continue // the last one was just killed
			}
			pid := drivers[which%len(drivers)]
			if unix.Kill(pid, unix.SIGKILL) != nil {
				continue
			}
			eventually(t, func() bool { return unix.Kill(pid, 0) != nil }, "a killed driver is not reaped")
			count.drivers++
		case what < 9:
			gates := s.gates()
			if len(gates) == 0 {
				continue
			}
			_ = unix.Kill(gates[0], unix.SIGKILL)
			count.gates++
		default:
			c := others[which%len(others)]
			require.True(t, c.end(unix.SIGKILL))
			require.NotContains(t, c.said.String(), "FAULT")
			others[which%len(others)] = s.client(rng)
			count.clients++
		}
		at := time.Now()
		l.works(t, 1)
		took := time.Since(at)
		slowest, total = max(slowest, took), total+took
		recovered++
	}
	for _, c := range others {
		require.True(t, c.end(unix.SIGTERM), "a client was never answered")
		require.Zero(t, c.cmd.ProcessState.ExitCode(), "%s", c.said)
	}
	l.end(t)
	s.atRest()
	lines := s.records()
	require.NotEmpty(t, lines)
	s.stop()
	require.NotContains(t, strings.Join(lines, "\n"), "device.wedged")
	t.Logf("%d kills (%d drivers, %d gates, %d clients): %d recoveries, mean %v, slowest %v; %d ok, %d otherwise, %d sessions lost; 0 false outcomes",
		kills, count.drivers, count.gates, count.clients, kills, (total / time.Duration(max(kills, 1))).Round(time.Millisecond), slowest.Round(time.Millisecond), l.ok.Load(), l.notOK.Load(), l.lost.Load())
}
