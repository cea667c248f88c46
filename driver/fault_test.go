package driver

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/control"
	"capgpu/ddf/fake"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// newTestDriver is a driver on the fake function, without its links.
func newTestDriver(t *testing.T) *driver {
	t.Helper()
	leakcheck.Check(t)
	fn, err := fake.New(fake.Options{})
	require.NoError(t, err)
	b, err := mock.New(mock.Options{})
	require.NoError(t, err)
	set := fn.Grants()
	d := &driver{log: slog.New(slog.DiscardHandler), ctx: t.Context()}
	d.device, err = gpu.New(gpu.Config{Info: set.Device, Backend: b, DMA: set.DMA, Audit: set.Audit, Settle: d.settle, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.close())
		require.NoError(t, fn.Close())
	})
	return d
}

// conns is a connected pair.
func conns(t *testing.T) (a, b *control.Conn) {
	t.Helper()
	x, y, err := shm.Socketpair()
	require.NoError(t, err)
	a, err = control.NewConn(x, control.ConnOptions{Descriptors: true})
	require.NoError(t, err)
	b, err = control.NewConn(y, control.ConnOptions{Descriptors: true})
	require.NoError(t, err)
	return a, b
}

// Sessions learn that the device is gone before the manager has its answer, so
// before the manager kills the driver.
func TestDeviceGoneIsReportedFirst(t *testing.T) {
	d := newTestDriver(t)
	handle := d.handler(func() {})
	ours, theirs, err := shm.Socketpair()
	require.NoError(t, err)
	body := control.AttachRequest{Session: 1, Tenant: "alice", Facet: 2, Weight: 1}.AppendTo(nil)
	require.NoError(t, handle(t.Context(), &control.Message{Type: control.TypeAttach, Body: body, FDs: []int{theirs}}).Err())
	conn, err := control.NewConn(ours, control.ConnOptions{})
	require.NoError(t, err)
	client := control.NewCaller(conn)
	defer client.Close()

	ended := make(chan error, 1)
	go func() {
		_, err := client.Call(context.Background(), control.TypeAwaitEnd, nil, nil)
		ended <- err
	}()

	// A call that was answered: the driver is reading.
	_, err = client.Call(t.Context(), control.TypeDescribe, nil, nil)
	require.NoError(t, err)

	gone := control.DeviceGoneRequest{Reason: "it was unplugged"}.AppendTo(nil)
	require.NoError(t, handle(t.Context(), &control.Message{Type: control.TypeDeviceGone, Body: gone}).Err())
	err = <-ended
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	require.ErrorContains(t, err, "it was unplugged")
	<-client.Done()
	attach := handle(t.Context(), &control.Message{Type: control.TypeAttach, Body: body})
	require.ErrorIs(t, attach.Err(), gpuerr.Busy)
}

// The IOMMU's refusals reach the core, and the core's question reaches the manager.
func TestFaultsCrossTheLink(t *testing.T) {
	d := newTestDriver(t)
	_, err := d.settle(t.Context())
	require.ErrorIs(t, err, gpuerr.Busy, "before there is a link")

	ours, theirs := conns(t)
	driverSide := control.NewPeer(t.Context(), ours, d.handler(func() {}))
	defer driverSide.Close()
	d.link.Store(driverSide)
	var managerSide *control.Caller
	var complete atomic.Uint64
	complete.Store(uint64(time.Second))
	ready := make(chan struct{})
	fault := control.DeviceFaultRequest{IOVA: 0x900000, Access: control.FaultWrite, Count: 2, Reason: "PTE Write access is not set"}
	managerSide = control.NewPeer(t.Context(), theirs, func(ctx context.Context, m *control.Message) *control.Message {
		<-ready
		if m.Type != control.TypeSettleFaults {
			return control.ErrorReply(m, gpuerr.New(gpuerr.Unimplemented, "%v", m.Type))
		}
		if _, err := managerSide.Call(ctx, control.TypeDeviceFault, fault.AppendTo(nil), nil); err != nil {
			return control.ErrorReply(m, err)
		}
		return control.NewReply(m, control.SettleFaultsReply{CompleteNanos: complete.Load()}.AppendTo(nil))
	})

	defer managerSide.Close()
	close(ready)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	known, err := d.settle(ctx)
	require.NoError(t, err)
	require.Equal(t, time.Second, known)
	complete.Store(math.MaxUint64)
	known, err = d.settle(ctx)
	require.NoError(t, err)
	require.EqualValues(t, math.MaxInt64, known)
	require.EqualValues(t, 4, d.device.Status("").Faults)
}
