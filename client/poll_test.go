package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
)

// Poll hands out what Completions would, and does not wait for it.
func TestPoll(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	b, err := s.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	done := make([]client.Completion, 8)
	n, err := q.Poll(done)
	require.NoError(t, err)
	require.Zero(t, n, "nothing was submitted")

	for range 3 {
		_, err := q.Submit(&client.Fill{Buffer: b, Bytes: 4096})
		require.NoError(t, err)
	}
	var tickets []uint64
	for len(tickets) < 3 {
		require.NoError(t, ctx.Err())
		n, err := q.Poll(done[:2])
		require.NoError(t, err)
		for _, c := range done[:n] {
			tickets = append(tickets, c.Ticket)
		}
	}
	require.Equal(t, []uint64{1, 2, 3}, tickets)
	n, err = q.Poll(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, q.Close(ctx))
	_, err = q.Poll(done)
	require.ErrorIs(t, err, gpuerr.Closed)
}
