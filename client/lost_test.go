package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// A session of a driver that has died has memory of it: descriptors and mappings. Close gives
// back all of that, although there is nobody to ask any more.
func TestCloseOfALostSessionGivesAllBack(t *testing.T) {
	leakcheck.Check(t)
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	conn, err := client.Dial(ctx, svc.Socket)
	require.NoError(t, err)
	s, err := conn.Open(ctx, 0)
	require.NoError(t, err)
	below, err := s.Restrict(ctx, client.Policy{Facet: client.FacetFull})
	require.NoError(t, err)
	var mapped []*client.Buffer
	for _, of := range []*client.Session{s, below} {
		b, err := of.CreateBuffer(ctx, 8192, client.Storage)
		require.NoError(t, err)
		_, err = b.WriteAt([]byte("mapped by this"), 0)
		require.NoError(t, err)
		held, err := of.CreateBuffer(ctx, 4096, client.Storage)
		require.NoError(t, err)
		_, err = held.Map()
		require.NoError(t, err)
		mapped = append(mapped, held)
		_, err = of.CreateFence(ctx, 0)
		require.NoError(t, err)
		q, err := of.CreateQueue(ctx, client.QueueOptions{})
		require.NoError(t, err)
		_, err = q.Submit(&client.Fill{Buffer: b, Bytes: 4096})
		require.NoError(t, err)
	}
	svc.Kill()
	for _, of := range []*client.Session{s, below} {
		<-of.Done()
		require.ErrorIs(t, of.Err(), gpuerr.Disconnected)
		require.NoError(t, of.Close(ctx))
	}
	for _, b := range mapped {
		require.NoError(t, b.Unmap())
	}
	_ = conn.Close() // the service went first
}

// A service that knows nothing of OpenReady is asked with what every service has.
func TestOpenReadyOfAnOldService(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	conn, err := client.Dial(ctx, svc.Socket)
	require.NoError(t, err)
	defer conn.Close()
	s, err := conn.OpenReady(ctx, 0)
	require.NoError(t, err)
	require.NoError(t, s.Close(ctx))
	_, err = conn.OpenReady(ctx, 1)
	require.ErrorIs(t, err, gpuerr.NoDevice)
}
