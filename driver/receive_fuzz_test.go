package driver

import (
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
)

// datagram encodes one datagram of a fuzzed conversation: its length, its number of
// descriptors, and its bytes.
func datagram(b []byte, fds byte) []byte {
	return append(append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), fds), b...)
}

// Another driver may send anything on the transfer socket, with any descriptors.
// The driver either receives exactly what was announced or refuses it with a code,
// and no descriptor stays open.
func FuzzReceiveState(f *testing.F) {
	part := func(seq uint64, body string, fds byte) []byte {
		return datagram(message(f, seq, body, int(fds)), fds)
	}

	join := func(all ...[]byte) (b []byte) {
		for _, d := range all {
			b = append(b, d...)
		}
		return b
	}

	image, err := json.Marshal(state{Snapshot: &gpu.Snapshot{Version: 1}})
	require.NoError(f, err)
	head := func(bytes, fds int) string {
		b, err := json.Marshal(stateHead{Version: gpu.SnapshotVersion, Bytes: uint64(bytes), Descriptors: uint64(fds)})
		require.NoError(f, err)
		return string(b)
	}

	f.Add(join(part(1, head(len(image), 5), 0), part(2, string(image), 0), part(3, "", 4), part(4, "", 1)))
	f.Add(join(part(1, head(10, 0), 0), part(2, "12345678901", 0)))
	f.Add(join(part(1, head(2, 1), 1), part(2, "{}", 1)))
	f.Add(join(part(1, head(1<<40, 1<<40), 0)))
	f.Add(join(part(1, `{"version":9}`, 0)))
	f.Add(join(part(1, head(0, 0), 0)))
	f.Add(join(part(2, head(0, 0), 0), []byte{3, 0, 4, 1, 2, 3}))
	f.Fuzz(func(t *testing.T, data []byte) {
		leakcheck.Check(t)
		ours, theirs, err := shm.Socketpair()
		require.NoError(t, err)
		conn, err := control.NewConn(ours, control.ConnOptions{Descriptors: true})
		require.NoError(t, err)
		defer conn.Close()

		sent := 0
		for len(data) >= 3 && sent < 64 {
			n, fds := min(int(binary.LittleEndian.Uint16(data)), len(data)-3), int(data[2]%6)
			var oob []byte
			if fds > 0 {
				lent := make([]int, fds)
				for i := range lent {
					lent[i] = theirs
				}
				oob = unix.UnixRights(lent...)
			}
			if unix.Sendmsg(theirs, data[3:3+n], oob, nil, unix.MSG_DONTWAIT) != nil {
				break
			}
			data, sent = data[3+n:], sent+1
		}

		require.NoError(t, unix.Shutdown(theirs, unix.SHUT_WR))
		defer unix.Close(theirs)
		d := &driver{log: slog.New(slog.DiscardHandler)}
		d.upgrade.version = gpu.SnapshotVersion
		text, fds, err := d.receiveState(conn)
		if err != nil {
			code := gpuerr.CodeOf(err)
			require.True(t, code == gpuerr.Protocol || code == gpuerr.Disconnected || code == gpuerr.Version, "%v", err)
			require.Empty(t, fds)
			return
		}

		var st state
		_ = strict(text, &st)
		_ = checkKinds(fds, nil)
		closeAll(fds)
	})
}

// message is a driver's message as it lies on the wire.
func message(f *testing.F, seq uint64, body string, fds int) []byte {
	a, b, err := shm.Socketpair()
	require.NoError(f, err)
	defer unix.Close(b)
	conn, err := control.NewConn(a, control.ConnOptions{})
	require.NoError(f, err)
	defer conn.Close()
	lent := make([]int, fds)
	for i := range lent {
		lent[i] = b
	}
	require.NoError(f, conn.Send(f.Context(), &control.Message{Type: control.TypePart, Seq: seq, Body: []byte(body), FDs: lent}))
	buf := make([]byte, control.MaxMessageBytes)
	n, _, _, _, err := unix.Recvmsg(b, buf, nil, 0)
	require.NoError(f, err)
	return buf[:n]
}
