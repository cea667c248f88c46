package driver

import (
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// stuckLog is an audit log that accepts nothing until it is released.
type stuckLog struct {
	ddf.HardwareAuditLog
	letGo chan struct{}
}

func (l *stuckLog) Append(string, string) error {
	<-l.letGo
	return nil
}

// While the log is behind, opening a session waits. A Ping does not.
func TestAttachesLeaveRoomForPings(t *testing.T) {
	leakcheck.Check(t)
	fn, err := fake.New(fake.Options{})
	require.NoError(t, err)
	defer fn.Close()

	b, err := mock.New(mock.Options{})
	require.NoError(t, err)
	log := &stuckLog{letGo: make(chan struct{})}
	set := fn.Grants()
	device, err := gpu.New(gpu.Config{Info: set.Device, Backend: b, DMA: set.DMA, Audit: log, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	d := &driver{device: device, log: slog.New(slog.DiscardHandler), ctx: t.Context()}
	defer func() { require.NoError(t, d.close()) }()

	letGo := sync.OnceFunc(func() { close(log.letGo) })
	defer letGo()

	// The log falls behind: from here on, opening a session waits.
	for range 257 {
		s, err := device.OpenSession(gpu.Attach{Tenant: "busy", TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits(), Facet: gpu.FacetMemory, Weight: 1})
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}

	require.NoError(t, device.Reclaimed(t.Context())) // this is in the log, too
	handle := d.handler(func() {})
	const asked = maxAttaching + 8
	var clients []int
	replies := make(chan *control.Message, asked)
	for i := range asked {
		ours, theirs, err := shm.Socketpair()
		require.NoError(t, err)
		clients = append(clients, ours)
		body := control.AttachRequest{Session: uint64(i + 1), Tenant: "busy", Weight: 1}.AppendTo(nil)
		go func() {
			replies <- handle(t.Context(), &control.Message{Type: control.TypeAttach, Body: body, FDs: []int{theirs}})
		}()
	}

	for range asked - maxAttaching {
		require.ErrorIs(t, (<-replies).Err(), gpuerr.Busy)
	}
	require.NoError(t, handle(t.Context(), &control.Message{Type: control.TypePing}).Err())
	select {
	case m := <-replies:
		require.Fail(t, "a session was opened while the log is stuck", "%v", m.Err())
	default:
	}

	letGo()
	for range maxAttaching {
		require.NoError(t, (<-replies).Err())
	}

	for _, fd := range clients {
		unix.Close(fd)
	}
}

// When the process dies, the kernel closes the supervision link first.
func TestLinkOfHighNumber(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	fd, err := unix.Dup(int(w.Fd()))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	moved := last(fd)
	require.GreaterOrEqual(t, moved, lastFD)
	_, err = unix.Write(moved, []byte("x"))
	require.NoError(t, err)
	require.NoError(t, unix.Close(moved))
	rest, err := io.ReadAll(r) // the end of the stream: no other descriptor is left
	require.NoError(t, err)
	require.Equal(t, "x", string(rest))
}
