package manager_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/control"
	"capgpu/internal/leakcheck"
	"capgpu/manager"
)

// askAndHangUp opens a session, asks it for something and closes its socket without
// waiting for the answer.
func askAndHangUp(t *testing.T, broker *control.Caller, typ control.MsgType, body []byte) {
	t.Helper()
	m, err := broker.Call(within(t), control.TypeOpenReady, control.OpenReadyRequest{TimeoutNanos: uint64(patience)}.AppendTo(nil), nil)
	require.NoError(t, err)
	conn, err := control.NewConn(m.FDs[0], control.ConnOptions{Descriptors: true})
	require.NoError(t, err)
	defer conn.Close()
	for seq := range uint64(4) {
		require.NoError(t, conn.Send(context.Background(), &control.Message{Type: typ, Seq: seq + 1, Body: body}))
	}
}

// A client that hangs up before the answer leaves nothing in the driver: no descriptor, no
// charge. Otherwise a tenant could use up all descriptors of the driver.
func TestHangUpBeforeTheAnswer(t *testing.T) {
	w := start(t, nil)
	_, pid := w.driver(1)
	other := w.dial("limited")
	serve := func() {
		s := w.open(other)
		require.NoError(t, addVectors(within(t), s), "others are served")
		require.NoError(t, s.Close(within(t)))
	}
	broker := w.broker("default")
	serve()
	var before int
	require.Eventually(t, func() bool { // it has settled
		now := len(descriptorsOf(t, pid))
		settled := now == before
		before = now
		return settled
	}, patience, 100*time.Millisecond)
	ours := leakcheck.Descriptors() // with the manager's

	for name, ask := range map[string]struct {
		typ  control.MsgType
		body []byte
	}{
		"large buffers": {control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 2 << 20, Usage: uint32(client.Storage)}.AppendTo(nil)},
		"small buffers": {control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 4096, Usage: uint32(client.Storage)}.AppendTo(nil)},
		"queues":        {control.TypeCreateQueue, control.CreateQueueRequest{Entries: 16, ArgBytes: 4096}.AppendTo(nil)},
		"sessions":      {control.TypeRestrict, control.RestrictRequest{Facet: 2}.AppendTo(nil)},
	} {
		for range 100 {
			askAndHangUp(t, broker, ask.typ, ask.body)
		}
		serve()
		if !assert.Eventually(t, func() bool {
			return len(descriptorsOf(t, pid)) <= before && leakcheck.Descriptors() <= ours+manager.ZeroPoolDescriptors
		}, patience, 10*time.Millisecond,
			"%s: there were %d descriptors before", name, before) {
			t.Fatal(descriptorsOf(t, pid), leakcheck.Descriptors(), ours)
		}
	}
	_, now := w.driver(1)
	require.Equal(t, pid, now)
}
