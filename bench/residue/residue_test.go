package residue

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/service"
	"capgpu/bench/dataplane/wire"
	"capgpu/client"
)

const next = "next" // the tenant that comes afterwards

// Programs that hang and ignore a cancel: the queue must be reset, and the
// function.
const (
	stubborn = "saxpy_f32"
	worse    = "reduce_f32"
	script   = `{"faults": [{"kind": "hang", "program": "` + stubborn + `"}, {"kind": "hangFunction", "program": "` + worse + `"}]}`
)

// paths are the ways in which a tenant's session ends.
var paths = []struct {
	name string
	gate bool
	end  func(*testing.T, *service.Service, *dirty)
}{
	{"close", false, func(_ *testing.T, _ *service.Service, d *dirty) { d.close() }},
	{"client killed", false, func(_ *testing.T, _ *service.Service, d *dirty) { d.kill() }},
	{"client of a gate killed", true, func(_ *testing.T, _ *service.Service, d *dirty) { d.kill() }},
	{"gate killed", true, func(t *testing.T, s *service.Service, d *dirty) {
		gate, err := s.GatePID()
		require.NoError(t, err)
		require.NoError(t, unix.Kill(gate, unix.SIGKILL))
		d.kill()
	}},
	{"queue reset", false, func(t *testing.T, s *service.Service, d *dirty) {
		hang(t, s.SocketOf(next), stubborn)
		d.kill()
	}},
	{"function reset", false, func(t *testing.T, s *service.Service, d *dirty) {
		hang(t, s.SocketOf(next), worse)
		d.kill()
	}},
	{"function reset under the next one", false, func(t *testing.T, s *service.Service, d *dirty) {
		d.kill()
		hang(t, s.Socket, worse)
	}},
	{"driver killed", false, func(t *testing.T, s *service.Service, d *dirty) {
		pid, err := s.DriverPID()
		require.NoError(t, err)
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		ready(t, s)
		d.kill()
	}},
	{"driver upgraded, then closed", false, func(t *testing.T, s *service.Service, d *dirty) {
		upgrade(t, s)
		d.close() // its session lived on
	}},
	{"driver upgraded, then killed", true, func(t *testing.T, s *service.Service, d *dirty) {
		upgrade(t, s)
		pid, err := s.DriverPID()
		require.NoError(t, err)
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		ready(t, s)
		d.kill()
	}},
	{"driver killed twice, a gate's client", true, func(t *testing.T, s *service.Service, d *dirty) {
		for range 2 { // the successor may be a standby
			pid, err := s.DriverPID()
			require.NoError(t, err)
			require.NoError(t, unix.Kill(pid, unix.SIGKILL))
			ready(t, s)
		}
		d.kill()
	}},
}

// However a tenant's session ends, the next tenant finds nothing of it in anything
// that it gets, neither at once nor after everything was given back.
func TestNothingIsLeftToTheNextTenant(t *testing.T) {
	svc, err := service.Start(bin, peers.ServerCPU, service.Options{
		Neighbours: []string{next}, Faults: script,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, svc.Close()) }()

	for _, p := range paths {
		t.Run(p.name, func(t *testing.T) {
			skipIfTheKernelHolds(t, svc)
			pattern := rand.Uint32() | 0x80808080 // no small number, and no byte of it is 0
			kind, socket := "direct", svc.Socket
			if p.gate {
				kind, socket = "gate", strings.TrimSuffix(svc.Socket, ".sock")+".capnp.sock"
			}
			d := startDirty(t, kind, socket, pattern)
			defer d.kill()
			p.end(t, svc, d)
			scan(t, svc.SocketOf(next), pattern)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			require.NoError(t, svc.AwaitReclaimed(ctx, patience))
			scan(t, svc.SocketOf(next), pattern)
			scan(t, svc.Socket, pattern) // the same tenant, in a new session
		})
	}
}

// skipIfTheKernelHolds skips the test on kernels that hold a killed process for
// longer than the manager waits (Linux 6.18: release_task, after others have read
// its /proc files). Such a device is rightly lost, and tells nothing about its
// residue.
func skipIfTheKernelHolds(t *testing.T, svc *service.Service) {
	if strings.Contains(svc.Log(), "cannot be reaped") {
		t.Skip("the kernel did not let go of a killed process; the device is wedged")
	}
}

// ready waits for the next driver.
func ready(t *testing.T, s *service.Service) {
	t.Helper()
	if err := s.AwaitReady(patience); err != nil {
		skipIfTheKernelHolds(t, s)
		require.NoError(t, err)
	}
}

// TestTheScanFinds: a scan that finds nothing proves something only if it can find.
func TestTheScanFinds(t *testing.T) {
	const pattern = 0xA77AC0DE
	mem := make([]byte, 8192)
	require.NoError(t, clean("memory", mem, pattern))
	binary.LittleEndian.PutUint32(mem[4097:], pattern) // also where it is not aligned
	require.ErrorContains(t, traces("memory", mem, pattern), "at 4097")
	mem[4097], mem[4098], mem[4099], mem[4100] = 0, 0, 0, 1
	require.NoError(t, traces("memory", mem, pattern))
	require.ErrorContains(t, clean("memory", mem, pattern), "at 4100")
}

// traces reports where a pattern is.
func traces(what string, mem []byte, pattern uint32) error {
	if i := bytes.Index(mem, binary.LittleEndian.AppendUint32(nil, pattern)); i >= 0 {
		return fmt.Errorf("%s has another tenant's pattern at %d of %d", what, i, len(mem))
	}
	return nil
}

// clean reports memory that is not zero.
func clean(what string, mem []byte, pattern uint32) error {
	if err := traces(what, mem, pattern); err != nil {
		return err
	}
	if i := bytes.IndexFunc(mem, func(r rune) bool { return r != 0 }); i >= 0 {
		return fmt.Errorf("%s is not zero at %d of %d: %#x", what, i, len(mem), mem[i])
	}
	return nil
}

// scan examines everything that a new session gets.
func scan(t *testing.T, socket string, pattern uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	s, err := wire.Open(ctx, socket)
	require.NoError(t, err)
	for _, n := range sizes {
		b, err := s.Buffer(ctx, n)
		require.NoError(t, err)
		// This includes the whole file: before the buffer, behind it, and up to the
		// page's end.
		require.NoError(t, clean(fmt.Sprintf("the memory of a buffer of %d bytes", n), b.All, pattern))
	}

	for _, entries := range []uint32{2, 64, 1024} {
		q, err := s.Queue(ctx, entries, 64<<10)
		require.NoError(t, err)
		const header = 256 // the driver's part of the ring: docs/wire.md
		require.NoError(t, traces("the header of a ring", q.All[:header], pattern))
		require.NoError(t, clean(fmt.Sprintf("a ring of %d entries", entries), q.All[header:], pattern))
	}

	s.Forget()
	require.NoError(t, s.Close())

	conn, err := client.Dial(ctx, socket)
	require.NoError(t, err)
	defer conn.Close()
	session, err := conn.Open(ctx, 0)
	require.NoError(t, err)
	scanKernel(ctx, t, session, pattern)
	require.NoError(t, session.Close(ctx))
}

// scanKernel reads memory that a kernel has not written: its shared memory of both
// kinds, and its private memory.
func scanKernel(ctx context.Context, t *testing.T, s *client.Session, pattern uint32) {
	t.Helper()
	program, err := s.LoadProgram(ctx, both)
	require.NoError(t, err)
	b, err := s.CreateBuffer(ctx, 64<<10, client.Storage)
	require.NoError(t, err)
	mem, err := b.Map()
	require.NoError(t, err)
	defer b.Unmap()

	q, err := s.CreateQueue(ctx, client.QueueOptions{Entries: 2})
	require.NoError(t, err)
	for range 5 { // each worker of the device has memory of its own
		require.NoError(t, q.Run(ctx, &client.Launch{Program: program, Grid: client.Dim3{X: 8, Y: 1, Z: 1}, Block: program.Info().Block,
			SharedBytes: dynamicBytes, Bindings: []client.Binding{{Buffer: b}}, Inline: make([]byte, 4)}))
		require.NoError(t, traces("a kernel's memory", mem, pattern))
		shared := mem[:32<<10]
		if bytes.Count(shared, []byte{0xCD}) != len(shared) {
			t.Fatal("shared memory is not what every workgroup finds: 0xCD")
		}
	}
}

// hang causes a reset of the device, by a tenant's work that does not stop.
func hang(t *testing.T, socket, program string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	conn, err := client.Dial(ctx, socket)
	require.NoError(t, err)
	defer conn.Close()
	s, err := conn.Open(ctx, 0)
	require.NoError(t, err)
	p, err := s.OpenProgram(ctx, program)
	require.NoError(t, err)
	launch := &client.Launch{Program: p, Inline: make([]byte, p.Info().InlineBytes), Deadline: 10 * time.Millisecond}
	for range p.Info().Bindings {
		b, err := s.CreateBuffer(ctx, 4096, client.Storage)
		require.NoError(t, err)
		launch.Bindings = append(launch.Bindings, client.Binding{Buffer: b})
	}

	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, q.Run(ctx, launch), "timedOut")
	require.NoError(t, s.Close(ctx))
}

// upgrade replaces the driver by another process that continues its sessions.
func upgrade(t *testing.T, s *service.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin, err := client.DialAdmin(ctx, s.AdminSocket())
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.Upgrade(ctx, "mock0")
	require.NoError(t, err)
}
