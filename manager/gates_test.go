package manager_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gate/gatetest"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard/rpcguardtest"
	"capgpu/ledger"
	"capgpu/manager"
)

// ask connects to a Cap'n Proto socket, asks for the first capability, and returns the
// answer.
func ask(path string) (answer string, err error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := c.Write(rpcguardtest.Bootstrap(0)); err != nil && !errors.Is(err, unix.EPIPE) { // refused already
		return "", err
	}
	said := make([]byte, 4096)
	n, err := c.Read(said)
	return string(said[:n]), err
}

// gateTurns counts the gates given to clients, in the order of the manager's log.
type gateTurns struct {
	foreign atomic.Int64 // given to the tenant default
	before  atomic.Int64 // foreign, when limited last got one
}

// turnsHandler counts the log's lines in turns. It drops the lines of a storm.
type turnsHandler struct {
	slog.Handler
	turns  *gateTurns
	tenant string
}

func (h turnsHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h turnsHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "tenant" {
			h.tenant = a.Value.String()
		}
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h turnsHandler) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case r.Message == "a gate serves" && h.tenant == "default":
		h.turns.foreign.Add(1)
	case r.Message == "a gate serves":
		h.turns.before.Store(h.turns.foreign.Load())
	case r.Message != "refused a connection" && h.Handler.Enabled(ctx, r.Level):
		return h.Handler.Handle(ctx, r)
	}
	return nil
}

// A tenant that connects and hangs up all the time delays another tenant by one turn of a
// gate or two. The test checks the order, not the time.
func TestConnectStormIsFair(t *testing.T) {
	const workers, times = 32, 24
	turns := &gateTurns{}
	w := start(t, func(c *manager.Config) {
		c.Policy.Tenant("default").MaxConnections = workers
		c.Log = slog.New(turnsHandler{Handler: c.Log.Handler(), turns: turns})
	})
	_, driver := w.driver(1)
	victim := func() (waits []int64, took []time.Duration) {
		for range times {
			before, began := turns.foreign.Load(), time.Now()
			answer, err := ask(w.CapnpSocketPath("limited"))
			require.NoError(t, err)
			require.NotContains(t, answer, "E_BUSY")
			waits, took = append(waits, turns.before.Load()-before), append(took, time.Since(began))
			time.Sleep(100 * time.Millisecond) // at its rate
		}
		slices.Sort(waits)
		slices.Sort(took)
		return waits, took
	}
	_, quiet := victim()

	storm, stop := context.WithCancel(context.Background())
	var storming sync.WaitGroup
	defer storming.Wait()
	defer stop()
	for range workers {
		storming.Go(func() {
			for storm.Err() == nil {
				_, _ = ask(w.CapnpSocketPath("default")) // whatever the answer
			}
		})
	}
	require.Eventually(t, func() bool { return turns.foreign.Load() >= workers }, patience, time.Millisecond)
	waits, took := victim()
	t.Logf("gates of others that were served before the victim's: %v", waits)
	t.Logf("the victim's connections took p50 %v and at most %v; without the storm %v and %v", took[times/2], took[times-1], quiet[times/2], quiet[times-1])
	require.LessOrEqual(t, waits[times/2], int64(3), "in the middle")

	// A driver that dies in the middle is replaced.
	kill(t, driver)
	w.driver(2)
	stop()
	storming.Wait()
	w.noConnections(1)
}

// A tenant gets its burst of gates and then its rate, and is told when to come again.
func TestGateRateIsTold(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.Policy.Tenant("default").GateRate = 1 })
	w.driver(1)
	var answer string
	require.Eventually(t, func() bool {
		var err error
		answer, err = ask(w.CapnpSocketPath("default"))
		require.NoError(t, err)
		return strings.Contains(answer, "E_BUSY")
	}, 3*patience, time.Microsecond)
	require.Contains(t, answer, "connect again in")
	_, err := ask(w.CapnpSocketPath("limited"))
	require.NoError(t, err)
}

// A socket accepts a bounded number of connections per second, so that connecting costs the
// service a bounded part of its time.
func TestConnectsAreTakenAtAPace(t *testing.T) {
	const workers, count = 8, 3000
	w := start(t, nil)
	w.driver(1)
	var left atomic.Int64
	left.Store(count)
	var storming sync.WaitGroup
	began := time.Now()
	for range workers {
		storming.Go(func() {
			for left.Add(-1) >= 0 {
				conn, err := client.Dial(within(t), w.SocketPath("default"))
				assert.NoError(t, err)
				if err == nil {
					conn.Close()
				}
			}
		})
	}
	storming.Wait()
	took := time.Since(began)
	t.Logf("%d connections took %v", count, took)
	require.GreaterOrEqual(t, took, (count-256)*250*time.Microsecond)
}

// Drivers start while no gate can start, and ready gates serve clients.
func TestDriverStartsBesideGates(t *testing.T) {
	w := start(t, nil)
	_, driver := w.driver(1)
	require.Eventually(t, func() bool { return len(waitingGates(t)) == 3 }, patience, time.Millisecond)
	letGo := w.HoldGateStarts()
	defer letGo()
	for epoch := uint64(2); epoch < 5; epoch++ {
		kill(t, driver)
		_, driver = w.driver(epoch)
	}
	require.NoError(t, w.dialCapnp("default").Resolve(within(t)))
	letGo()
	for range 5 {
		require.NoError(t, w.dialCapnp("default").Resolve(within(t)))
	}
}

func waitingGates(t *testing.T) []int {
	return slices.DeleteFunc(children(t), func(pid int) bool { return !isGate(pid) || gatetest.HasClient(pid) })
}

// A ready gate is replaced when it dies, and no gate outlives the manager.
func TestWaitingGatesAreReplaced(t *testing.T) {
	w := start(t, nil)
	require.Eventually(t, func() bool { return len(waitingGates(t)) == 3 }, patience, time.Millisecond)
	first := waitingGates(t)
	for _, pid := range first {
		kill(t, pid)
	}
	require.Eventually(t, func() bool {
		now := waitingGates(t)
		return len(now) == 3 && !slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(first, pid) })
	}, patience, time.Millisecond)
	m := w.dialCapnp("default")
	require.NoError(t, m.Resolve(within(t)))
	w.stop()
	require.Empty(t, children(t))
}

// A connection gets a process when its client has sent a byte, and not earlier.
func TestSilentConnectionsHaveNoGate(t *testing.T) {
	w := start(t, nil)
	w.driver(1)
	for range 20 {
		defer connect(t, "unix", w.CapnpSocketPath("default")).Close()
	}
	require.Eventually(t, func() bool { return w.held(ledger.Connections) == 20 }, patience, time.Millisecond)
	defer w.begun("default").Close()
	require.Eventually(t, func() bool { return len(gates(t)) == 1 }, patience, time.Millisecond)
	require.EqualValues(t, 21, w.held(ledger.Connections))
}

// Connections without a request, with half a message, or without a session end after the idle
// timeout of the policy, and make room. Those with a session stay.
func TestIdleConnectionsEnd(t *testing.T) {
	const idle, seats = 300 * time.Millisecond, 12
	w := start(t, func(c *manager.Config) {
		c.Policy.Tenant("default").IdleTimeout = idle
		c.Policy.Tenant("default").MaxConnections = seats
	})
	w.driver(1)
	direct := w.dial("default")
	s := w.open(direct)
	m := w.dialCapnp("default")
	held, err := openCapnp(t, m)
	require.NoError(t, err)

	// The rest of the connections.
	half := connect(t, "unixpacket", w.SocketPath("default"))
	bare := connect(t, "unix", w.CapnpSocketPath("default"))
	unused := w.dialCapnp("default")
	require.NoError(t, unused.Resolve(within(t)))
	quiet := []*net.UnixConn{half, bare, w.begun("default")}
	spoken := w.dial("default")
	for len(quiet) < seats-4 {
		quiet = append(quiet, connect(t, "unixpacket", w.SocketPath("default")))
	}
	require.Eventually(t, func() bool { return w.held(ledger.Connections) == seats || spoken.Err() != nil }, patience, time.Millisecond)
	for _, c := range quiet {
		drained(t, c)
		c.Close()
	}
	<-spoken.Done()
	require.ErrorIs(t, spoken.Err(), gpuerr.Disconnected)
	f, release := unused.ListDevices(within(t), nil)
	defer release()
	_, err = f.Struct()
	require.Error(t, err, "it had no capability in use")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { return w.held(ledger.Connections) == 2 }, patience, time.Millisecond, "what has a session stays")
	require.NoError(t, describe(t, held))
	_, err = direct.Devices(within(t))
	require.NoError(t, err)
	again, err := openCapnp(t, m)
	require.NoError(t, err)
	require.NoError(t, describe(t, again))

	// When the session ends, the idle timeout of its connection begins.
	require.NoError(t, s.Close(within(t)))
	<-direct.Done()
	require.NoError(t, describe(t, held))
}

// One user does not get all of a tenant's connections if others may connect, and the refusal
// says what the user can do without one.
func TestOneUserLeavesSeats(t *testing.T) {
	w := start(t, func(c *manager.Config) {
		several := c.Policy.Tenant("limited")
		several.AllowedUIDs, several.MaxConnections = append(several.AllowedUIDs, 65533), 4
	})
	for range 3 {
		w.dial("limited")
	}
	answer, err := ask(w.CapnpSocketPath("limited"))
	require.NoError(t, err)
	require.Contains(t, answer, "E_QUOTA connections")
	require.Contains(t, answer, "and must leave some to others")
	require.Contains(t, answer, "when it has been idle for 5m0s")
}
