package residue

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/wire"
	"capgpu/client"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

const (
	dirtyName = "residue-dirty"
	patience  = 30 * time.Second
)

//go:embed testdata/both.spv
var both []byte // of both.comp

// sizes of buffers: carved from a shared piece with and without slack, a piece of their
// own, whole huge pages, and a page more.
var sizes = []uint64{1, 4096, 5000, 64 << 10, 1<<20 - 100, 1 << 20, 1<<20 + 4096, 2 << 20, 2<<20 + 5}

// dirty is a tenant's process that fills all reachable memory with a pattern.
type dirty struct {
	t   *testing.T
	cmd *exec.Cmd
	in  interface{ Close() error }
}

// startDirty returns when everything is full. kind is "direct" or "gate".
func startDirty(t *testing.T, kind, socket string, pattern uint32) *dirty {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	d := &dirty{t: t, cmd: exec.Command(self, dirtyName, kind, socket, strconv.FormatUint(uint64(pattern), 10))}
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	in, err := d.cmd.StdinPipe()
	require.NoError(t, err)
	d.in = in
	out, err := d.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "the tenant ended")
	require.Equal(t, "full\n", line)
	return d
}

// close makes it close its session and end.
func (d *dirty) close() {
	require.NoError(d.t, d.in.Close())
	require.NoError(d.t, d.cmd.Wait())
}

// kill is kill -9.
func (d *dirty) kill() {
	_ = d.cmd.Process.Kill() // it may have ended
	_ = d.cmd.Wait()
}

func runIfDirty() {
	if len(os.Args) != 5 || os.Args[1] != dirtyName {
		return
	}
	pattern, _ := strconv.ParseUint(os.Args[4], 10, 32)
	fill := fillDirectly
	if os.Args[2] == "gate" {
		fill = fillByGate
	}
	if err := fill(os.Args[3], uint32(pattern)); err != nil {
		fmt.Fprintln(os.Stderr, "the tenant that leaves something:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// awaitEnd reports that everything is full, and waits for the order to end.
func awaitEnd() {
	fmt.Println("full")
	bufio.NewScanner(os.Stdin).Scan()
}

// paint fills memory with a pattern.
func paint(mem []byte, pattern uint32) {
	for i := 0; i+4 <= len(mem); i += 4 {
		binary.LittleEndian.PutUint32(mem[i:], pattern)
	}
}

// fillDirectly uses the client library for work on the device, and the protocol
// itself for memory that the library never writes.
func fillDirectly(socket string, pattern uint32) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()

	s, err := conn.Open(ctx, 0)
	if err != nil {
		return err
	}
	if err := work(ctx, s, pattern); err != nil {
		return err
	}

	raw, err := wire.Open(ctx, socket)
	if err != nil {
		return err
	}

	for _, n := range sizes {
		b, err := raw.Buffer(ctx, n)
		if err != nil {
			return err
		}
		paint(b.All, pattern)
	}

	q, err := raw.Queue(ctx, 64, 64<<10)
	if err != nil {
		return err
	}

	paint(q.All[256:], pattern) // all but the header, which ends the queue
	awaitEnd()
	closing, done := context.WithTimeout(context.Background(), patience)
	defer done()

	return errors.Join(s.Close(closing), raw.Close())
}

// work leaves the pattern in a kernel's memory, in inline arguments, in an arena, in
// completions, and in a list with patches.
func work(ctx context.Context, s *client.Session, pattern uint32) error {
	program, err := s.LoadProgram(ctx, both)
	if err != nil {
		return err
	}

	b, err := s.CreateBuffer(ctx, 64<<10, client.Storage)
	if err != nil {
		return err
	}

	fill, err := s.OpenProgram(ctx, "fill_u32")
	if err != nil {
		return err
	}

	inline := binary.LittleEndian.AppendUint32(nil, pattern)
	launch := &client.Launch{Program: program, Grid: client.Dim3{X: 8, Y: 1, Z: 1}, Block: program.Info().Block, SharedBytes: dynamicBytes,
		Bindings: []client.Binding{{Buffer: b}}, Inline: inline}

	builtin := &client.Launch{Program: fill, Bindings: []client.Binding{{Buffer: b}}, Inline: inline}
	list, err := s.RecordList(ctx, launch, builtin, &client.Fill{Buffer: b, Bytes: 4096, Pattern: pattern})
	if err != nil {
		return err
	}

	q, err := s.CreateQueue(ctx, client.QueueOptions{Entries: 16})
	if err != nil {
		return err
	}

	for range 20 {
		if err := q.Run(ctx, launch, builtin, list.Replay(client.Patch{Command: 0, Inline: inline})); err != nil {
			return err
		}
	}

	return nil
}

// dynamicBytes of shared memory, besides 16 KiB that the program has.
const dynamicBytes = 16 << 10

// fillByGate writes through Cap'n Proto.
func fillByGate(socket string, pattern uint32) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}

	conn := rpc.NewConn(rpcguard.NewClientTransport(c), nil)
	defer conn.Close()
	m := schema.GpuDeviceManager(conn.Bootstrap(ctx))
	opened, _ := m.OpenDevice(ctx, nil)
	session := opened.Session()
	block := make([]byte, 60<<10)
	paint(block, pattern)
	for _, n := range sizes {
		made, _ := session.CreateBuffer(ctx, func(p schema.GpuMemorySession_createBuffer_Params) error {
			p.SetBytes(n)
			return p.SetUsage("storage")
		})
		b := made.Buffer()
		for off := uint64(0); off < n; off += uint64(len(block)) {
			wrote, _ := b.Write(ctx, func(p schema.GpuBuffer_write_Params) error {
				p.SetOffset(off)
				return p.SetData(block[:min(uint64(len(block)), n-off)])
			})
			if _, err := wrote.Struct(); err != nil {
				return err
			}
		}
	}

	awaitEnd()
	return nil
}
