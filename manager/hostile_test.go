package manager_test

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
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
	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/manager"
)

// connect opens a bare socket to the manager.
func connect(t *testing.T, network, path string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	require.NoError(t, err)
	return c
}

// drained reads until the manager closes the socket or resets it.
func drained(t *testing.T, c *net.UnixConn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, 8192)
	for {
		n, err := c.Read(buf)
		if err != nil || n == 0 {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the manager did not close the socket")
			return
		}
	}
}

// noConnections waits until no connection is charged and just so many processes are left. A
// connection that the manager has not accepted yet has neither.
func (w *world) noConnections(processes int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return w.held(ledger.Connections) == 0 && len(busyChildren(w.t)) == processes
	}, patience, time.Millisecond)
	require.NoError(w.t, w.Check())
}

func TestGarbageOnEverySocket(t *testing.T) {
	w := start(t, nil)
	epoch, _ := w.driver(1)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		b := make([]byte, 1+r.IntN(300))
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		direct := connect(t, "unixpacket", w.SocketPath("default"))
		_, err := direct.Write(b)
		require.NoError(t, err)
		drained(t, direct)
		direct.Close()
		if i%10 != 0 {
			continue // a gate is a process
		}
		capnp := connect(t, "unix", w.CapnpSocketPath("default"))
		_, err = capnp.Write(b)
		require.NoError(t, err)
		require.NoError(t, capnp.CloseWrite())
		drained(t, capnp)
		capnp.Close()
	}
	w.noConnections(1)
	again, _ := w.driver(1)
	require.Equal(t, epoch, again, "the driver did not notice")
}

// broker connects to a tenant's socket, for requests that no client library sends.
func (w *world) broker(tenant string) *control.Caller {
	w.t.Helper()
	c := connect(w.t, "unixpacket", w.SocketPath(tenant))
	raw, err := c.SyscallConn()
	require.NoError(w.t, err)
	var fd int
	require.NoError(w.t, raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }))
	require.NoError(w.t, err)
	c.Close()
	conn, err := control.NewConn(fd, control.ConnOptions{Descriptors: true})
	require.NoError(w.t, err)
	caller := control.NewCaller(conn)
	w.t.Cleanup(func() { caller.Close() })
	return caller
}

// Well-formed messages that a tenant may not send are refused.
func TestWrongMessages(t *testing.T) {
	w := start(t, nil)
	w.driver(1)
	caller := w.broker("default")
	for _, m := range []struct {
		typ  control.MsgType
		body []byte
		want gpuerr.Code
	}{
		{control.TypeHello, control.HelloRequest{Version: 99}.AppendTo(nil), gpuerr.Unimplemented},
		{control.TypeHello, control.HelloRequest{Version: control.HelloVersion - 1}.AppendTo(nil), gpuerr.Unimplemented},
		{control.TypeOpenDevice, control.OpenDeviceRequest{Index: 1}.AppendTo(nil), gpuerr.NoDevice},
		{control.TypeNextState, control.NextStateRequest{Index: 9}.AppendTo(nil), gpuerr.NoDevice},
		{control.TypeStatus, control.StatusRequest{Index: 1 << 31}.AppendTo(nil), gpuerr.NoDevice},
		{control.TypePing, nil, gpuerr.Unimplemented},
		{control.TypeShutdown, nil, gpuerr.Unimplemented},
		{control.TypeDescribe, nil, gpuerr.Unimplemented},
		{control.TypeSetTenant, control.SetTenantRequest{Tenant: "default"}.AppendTo(nil), gpuerr.Unimplemented},
	} {
		_, err := caller.Call(within(t), m.typ, m.body, nil)
		require.ErrorIs(t, err, m.want, "%v", m.typ)
	}
	_, err := caller.Call(within(t), control.TypeHello, control.HelloRequest{Version: control.HelloVersion}.AppendTo(nil), nil)
	require.NoError(t, err, "the socket is still good")
}

// Waiting requests are bounded, and leave room for others.
func TestNextStateFlood(t *testing.T) {
	w := start(t, nil)
	c := w.dial("default")
	w.driver(1)
	results := make(chan error, 60)
	for range 60 {
		go func() {
			_, err := c.NextStateFor(within(t), 0, 1, time.Second)
			results <- err
		}()
	}
	_, err := c.Devices(within(t))
	require.NoError(t, err)
	busy := 0
	for range 60 {
		if err := <-results; err != nil {
			require.ErrorIs(t, err, gpuerr.Busy)
			busy++
		}
	}
	require.Equal(t, 60-32, busy)
}

// Tenants that keep the driver busy with requests do not make it look silent.
func TestStatusFlood(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.PingInterval, c.PingTimeout = 10*time.Millisecond, patience })
	epoch, _ := w.driver(1)
	stop, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	var answers atomic.Uint64
	for range 3 {
		c := w.dial("default")
		for range 40 {
			asking.Go(func() {
				for stop.Err() == nil {
					if _, err := c.Status(stop, 0); err == nil {
						answers.Add(1)
					}
				}
			})
		}
	}
	other := w.open(w.dial("limited")) // gets its turn
	pings := w.PingsAnswered()
	require.Eventually(t, func() bool { return answers.Load() > 3000 && w.PingsAnswered() > pings+10 }, patience, time.Millisecond)
	cancel()
	asking.Wait()
	require.NoError(t, other.Close(within(t)))
	now, _ := w.driver(1)
	require.Equal(t, epoch, now)
}

// begun connects to the Cap'n Proto socket and sends part of a message: the connection has a
// gate.
func (w *world) begun(tenant string) *net.UnixConn {
	w.t.Helper()
	c := connect(w.t, "unix", w.CapnpSocketPath(tenant))
	_, err := c.Write([]byte{0, 0, 0, 0})
	require.NoError(w.t, err)
	return c
}

// The death of a gate ends its client's connection, and affects no other.
func TestGateKilled(t *testing.T) {
	w := start(t, nil)
	_, driver := w.driver(1)
	c := w.begun("default")
	defer c.Close()
	require.Eventually(t, func() bool { return len(gates(t)) == 1 }, patience, time.Millisecond)
	require.EqualValues(t, 1, w.held(ledger.Connections))
	kill(t, gates(t)[0])
	drained(t, c)
	w.noConnections(1)
	// The pool's next gate looks busy until it has executed its program.
	require.Eventually(t, func() bool { return slices.Equal([]int{driver}, busyChildren(t)) }, patience, time.Millisecond)
	require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))
}

// The end of a Cap'n Proto client ends its gate.
func TestGateEndsWithItsClient(t *testing.T) {
	w := start(t, nil)
	w.driver(1)
	for range 5 {
		connect(t, "unix", w.CapnpSocketPath("default")).Close()
		w.begun("default").Close()
	}
	w.noConnections(1)
}

// A client gets an answer if its gate is no gate, or if it is refused.
func TestCapnpRefusals(t *testing.T) {
	w := start(t, func(c *manager.Config) {
		c.GatePath = "/bin/true"
		c.Policy.Tenant("limited").AllowedUIDs = []uint32{65533}
	})
	w.driver(1)
	c := w.begun("default")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	said := make([]byte, 4096)
	n, err := c.Read(said)
	require.NoError(t, err)
	require.Contains(t, string(said[:n]), `E_BUSY: no gate could be started`, "an Abort with the reason")
	c.Close()
	c = connect(t, "unix", w.CapnpSocketPath("limited"))
	defer c.Close()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	n, err = c.Read(said)
	require.NoError(t, err)
	require.Contains(t, string(said[:n]), `E_DENIED: user`, "an Abort with the reason")
	w.noConnections(1)
}

// socketsOf returns the sockets of a process, by the kernel's names.
func socketsOf(pid int) (all []string, err error) {
	dir := filepath.Join("/proc", itoa(pid), "fd")
	fds, err := os.ReadDir(dir)
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			all = append(all, to)
		}
	}
	return all, err
}

// Children get two descriptors and an environment that says how they are confined, and no
// more. They die with the manager.
func TestChildrenAreBare(t *testing.T) {
	w := start(t, nil)
	_, pid := w.driver(1)
	env, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "environ"))
	require.NoError(t, err)
	for name := range strings.SplitSeq(strings.Trim(string(env), "\x00"), "\x00") {
		require.Regexp(t, "^(CAPGPU_SANDBOX_[A-Z]+|GODEBUG|GOMAXPROCS)=", name)
	}
	// A device's first driver may be ready before its rehearsal is over; the rehearsal's
	// session is a pair of sockets of its own. A child keeps inherited descriptors.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		held, err := socketsOf(pid)
		require.NoError(c, err)
		require.Len(c, held, 2, "the driver holds sockets that are not its own")
	}, patience, time.Millisecond)
	status, err := os.Readlink(filepath.Join("/proc", itoa(pid), "cwd"))
	require.NoError(t, err)
	require.Equal(t, "/", status)
}

func TestRunDirIsChecked(t *testing.T) {
	dir := shortDir(t)
	cfg := manager.Config{Policy: manager.DevPolicy(), DriverPath: program("gpu-mock"), GatePath: program("gpu-gate")}
	for _, c := range []struct {
		name, want string
		make       func(path string) error
	}{
		{"others can write", "others can write", func(p string) error {
			if err := os.Mkdir(p, 0o700); err != nil {
				return err
			}
			return os.Chmod(p, 0o777)
		}},
		{"a link", "not a directory", func(p string) error { return os.Symlink(dir, p) }},
		{"a file", "not a directory", func(p string) error { return os.WriteFile(p, nil, 0o600) }},
		{"of another", "belongs to user", func(p string) error {
			if err := os.Mkdir(p, 0o700); err != nil {
				return err
			}
			return os.Chown(p, 65533, -1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "of another" && os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			cfg := cfg
			log := &memoryLog{}
			cfg.RunDir, cfg.Audit = filepath.Join(dir, strings.ReplaceAll(c.name, " ", "-")), log
			require.NoError(t, c.make(cfg.RunDir))
			_, err := manager.Start(cfg)
			require.ErrorContains(t, err, c.want)
			require.True(t, log.closed, "Start owns the log also when it fails")
		})
	}
}

// Only sockets are removed from a run directory, and no session of one tenant is reachable
// from another.
func TestTenantsAreApart(t *testing.T) {
	w := start(t, nil)
	a, b := w.dial("default"), w.dial("limited")
	sa, sb := w.open(a), w.open(b)
	secret, err := sa.CreateBuffer(within(t), 4096, client.Storage)
	require.NoError(t, err)
	mine, err := sb.CreateBuffer(within(t), 4096, client.Storage)
	require.NoError(t, err)
	status, err := b.Status(within(t), 0)
	require.NoError(t, err)
	require.NotContains(t, string(status), `"default"`, "a tenant sees another's books")
	require.NotContains(t, string(status), `memory-only`)
	require.NoError(t, secret.Close(within(t)))
	require.NoError(t, mine.Close(within(t)))
}
