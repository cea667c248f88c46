package driver

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// A request to stop that the manager has given up does nothing, even if the driver
// reads the Thaw before it.
func TestLateFreezeIsHarmless(t *testing.T) {
	d := newTestDriver(t)
	handle := d.handler(func() {})
	ask := func(typ control.MsgType, seq uint64) error {
		var body []byte
		if typ == control.TypeFreeze {
			body = control.HandoverRequest{TimeoutNanos: uint64(time.Second)}.AppendTo(nil)
		}
		return handle(t.Context(), &control.Message{Type: typ, Seq: seq, Body: body}).Err()
	}

	require.NoError(t, ask(control.TypeThaw, 8))
	require.ErrorIs(t, ask(control.TypeFreeze, 7), gpuerr.Busy)
	require.False(t, d.device.Frozen())
	require.NoError(t, ask(control.TypeFreeze, 9))
	require.True(t, d.device.Frozen())
	require.NoError(t, ask(control.TypeThaw, 10))
	require.False(t, d.device.Frozen())
	require.NoError(t, ask(control.TypeThaw, 3), "an older one takes nothing back")
	require.ErrorIs(t, ask(control.TypeFreeze, 9), gpuerr.Busy)

	// A late hand-over does nothing either, and sends nothing on the socket.
	a, b, err := shm.Socketpair()
	require.NoError(t, err)
	defer unix.Close(b)

	m := &control.Message{Type: control.TypeHandover, Seq: 9, Body: control.HandoverRequest{TimeoutNanos: uint64(time.Second)}.AppendTo(nil), FDs: []int{a}}
	require.ErrorIs(t, handle(t.Context(), m).Err(), gpuerr.Busy)
	require.False(t, d.device.Frozen())
}

// A hand-over that was given up, and that fails only after the driver has been
// frozen again, does not undo the second freeze.
func TestLateHandoverTakesNothingBack(t *testing.T) {
	d := newTestDriver(t)
	handle := d.handler(func() {})
	body := control.HandoverRequest{TimeoutNanos: uint64(time.Minute)}.AppendTo(nil)
	from, to, err := shm.Socketpair()
	require.NoError(t, err)
	for err == nil { // fill the socket
		err = unix.Sendto(from, make([]byte, 4096), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}

	require.ErrorIs(t, err, unix.EAGAIN)
	failed := make(chan error, 1)
	go func() {
		failed <- handle(t.Context(), &control.Message{Type: control.TypeHandover, Seq: 7, Body: body, FDs: []int{from}}).Err()
	}()

	require.Eventually(t, d.device.Frozen, 10*time.Second, time.Millisecond)
	require.NoError(t, handle(t.Context(), &control.Message{Type: control.TypeThaw, Seq: 8}).Err())
	require.False(t, d.device.Frozen())
	require.NoError(t, handle(t.Context(), &control.Message{Type: control.TypeFreeze, Seq: 9, Body: body}).Err())
	unix.Close(to)
	require.Error(t, <-failed)
	require.True(t, d.device.Frozen())
}

// A driver checks the sockets, rings and pipes that it receives before it uses
// them, without asking the file itself.
func TestCheckKinds(t *testing.T) {
	sock, peer, err := shm.Socketpair()
	require.NoError(t, err)
	memory, err := unix.MemfdCreate("m", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	_, err = unix.FcntlInt(uintptr(memory), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	require.NoError(t, err)
	loose, err := unix.MemfdCreate("m", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	var p [2]int
	require.NoError(t, unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	file, err := os.Open("/proc/self/stat")
	require.NoError(t, err)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	stream, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()

	tcp, err := l.(*net.TCPListener).File()
	require.NoError(t, err)
	f, inet := int(file.Fd()), int(tcp.Fd())
	defer closeAll([]int{sock, peer, memory, loose, p[0], p[1], event, stream[0], stream[1]})
	defer file.Close()
	defer tcp.Close()

	require.NoError(t, checkKinds([]int{sock, peer}, []int{memory, p[0], p[1]}))
	for _, bad := range []int{memory, p[0], p[1], f, event, stream[0], inet, 99999} {
		require.ErrorIs(t, checkKinds([]int{sock, bad}, nil), gpuerr.Protocol, "%d as a socket", bad)
	}

	for _, bad := range []int{loose, sock, p[0], f, event, inet, 99999} {
		require.ErrorIs(t, checkKinds(nil, []int{bad, p[0], p[1]}), gpuerr.Protocol, "%d as memory", bad)
	}

	for _, bad := range []int{p[1], memory, sock, f, event, inet, 99999} {
		require.ErrorIs(t, checkKinds(nil, []int{memory, bad, p[1]}), gpuerr.Protocol, "%d as a reader", bad)
	}

	for _, bad := range []int{p[0], memory, sock, f, event, inet, 99999} {
		require.ErrorIs(t, checkKinds(nil, []int{memory, p[0], bad}), gpuerr.Protocol, "%d as a writer", bad)
	}

	require.ErrorIs(t, checkKinds(nil, []int{memory, p[0]}), gpuerr.Protocol)
}

// recoveries is a driver that reports recovery steps to a manager, which answer
// plays.
func recoveries(t *testing.T, answer func(control.RecoveryRequest) error) (d *driver, reported <-chan control.RecoveryRequest) {
	d = newTestDriver(t)
	ours, theirs := conns(t)
	heard := make(chan control.RecoveryRequest, 16)
	manager := control.NewPeer(context.Background(), theirs, func(_ context.Context, m *control.Message) *control.Message {
		req, err := control.ParseRecoveryRequest(m.Body)
		if err == nil {
			heard <- req
			err = answer(req)
		}
		if err != nil {
			return control.ErrorReply(m, err)
		}
		return control.NewReply(m, nil)
	})

	link := control.NewPeer(context.Background(), ours, d.handler(func() {}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.runRecovery(t.Context(), link)
	}()

	t.Cleanup(func() {
		link.Close() // ends runRecovery too
		<-ended
		manager.Close()
	})

	return d, heard
}

// The manager hears of the device's loss as a reset; the steps beyond are its own.
// The driver ignores a refusal, and reports nothing that has not changed.
func TestRecoveryIsReported(t *testing.T) {
	d, reported := recoveries(t, func(control.RecoveryRequest) error { return gpuerr.New(gpuerr.Busy, "not now") })
	d.device.Gone("a test")
	req := <-reported
	require.Equal(t, control.RecoveryRequest{Step: 3, Last: 3, Incidents: 1}, req)
	select {
	case again := <-reported:
		require.Fail(t, "reported again", "%+v", again)
	case <-time.After(20 * time.Millisecond):
	}
}
