package client_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
)

// Results are read while the session is ended by somebody else and its memory scrubbed:
// a caller that reads by ReadAt, or from a mapping and asks the queue afterwards, has what the
// device wrote or an error, never zeros.
func TestResultsOfARevokedSession(t *testing.T) {
	const size = 8 << 20
	want := bytes.Repeat([]byte{0xab}, size)
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	for range 30 {
		parent := svc.Open(t)
		s, err := parent.Restrict(ctx, client.Policy{Facet: client.FacetFull})
		require.NoError(t, err)
		b, err := s.CreateBuffer(ctx, size, client.Storage)
		require.NoError(t, err)
		mem, err := b.Map()
		require.NoError(t, err)
		q, err := s.CreateQueue(ctx, client.QueueOptions{})
		require.NoError(t, err)
		require.NoError(t, q.Run(ctx, &client.Fill{Buffer: b, Bytes: size, Pattern: 0xabababab}))
		require.NoError(t, q.Err())

		closed := make(chan error, 1)
		go func() {
			err := parent.Close(ctx)
			closed <- errors.Join(err, svc.Device.Reclaimed(ctx)) // which has it scrubbed without delay
		}()
		for got, looked := make([]byte, size), false; ; looked = true {
			n, err := b.ReadAt(got, 0)
			if err == nil {
				require.Equal(t, size, n)
				require.True(t, bytes.Equal(want, got), "read by ReadAt")
			}
			copy(got, mem)
			ended := q.Err()
			if ended == nil {
				require.True(t, bytes.Equal(want, got), "read from the mapping")
			}
			if err != nil && ended != nil && looked {
				require.ErrorIs(t, err, gpuerr.Revoked)
				require.ErrorIs(t, ended, gpuerr.Revoked)
				break
			}
		}
		require.NoError(t, <-closed)
		require.NoError(t, b.Unmap())
		require.NoError(t, s.Close(ctx))
	}
}

// A queue that alone has ended takes no memory along: it can be read on.
func TestReadsAfterAQueueWasClosed(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	b, err := s.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	require.NoError(t, q.Run(ctx, &client.Fill{Buffer: b, Bytes: 4096, Pattern: 7}))
	require.NoError(t, q.Close(ctx))
	require.ErrorIs(t, q.Err(), gpuerr.Closed)
	var p [1]byte
	_, err = b.ReadAt(p[:], 0)
	require.NoError(t, err)
	require.EqualValues(t, 7, p[0])
}
