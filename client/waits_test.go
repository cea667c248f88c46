package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/outcome"
)

// Waits that were given up hold their places at the service for a while; that
// holds up later waits, and makes none of them fail.
func TestWaitsAfterManyThatWereGivenUp(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	s := svc.Open(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	never, err := s.CreateFence(ctx, 0)
	require.NoError(t, err)
	f, err := s.CreateFence(ctx, 0)
	require.NoError(t, err)
	for range 32 {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		_, err := never.Wait(short, 1)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	st, err := f.WaitFor(ctx, 1, 50*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, outcome.Pending, st.Outcome.Kind)

	waited := make(chan error, 1)
	go func() {
		_, err := f.Wait(ctx, 1)
		waited <- err
	}()
	require.NoError(t, never.Close(ctx)) // wakes those that were given up
	require.NoError(t, f.Signal(ctx, 1))
	require.NoError(t, <-waited)
}
