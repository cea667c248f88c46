package control_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// If a peer closes with unread messages, the kernel reports a reset before that
// peer's last messages.
func TestLastWordsSurviveAReset(t *testing.T) {
	a, b, err := shm.Socketpair()
	require.NoError(t, err)
	conn, err := control.NewConn(a, control.ConnOptions{})
	require.NoError(t, err)
	defer conn.Close()

	peer, err := control.NewConn(b, control.ConnOptions{})
	require.NoError(t, err)
	ctx := t.Context()
	req := &control.Message{Type: control.TypeAwaitEnd, Seq: 1}
	require.NoError(t, conn.Send(ctx, req))
	require.NoError(t, peer.Send(ctx, control.ErrorReply(req, gpuerr.New(gpuerr.Revoked, "last words"))))
	require.NoError(t, peer.Close())

	m, err := conn.Recv()
	require.NoError(t, err)
	require.ErrorIs(t, m.Err(), gpuerr.Revoked)
	_, err = conn.Recv()
	require.Equal(t, io.EOF, err)
}
