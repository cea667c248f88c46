package manager

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEntriesWithin(t *testing.T) {
	p := DevPolicy() // 64 + 64 + 4 connections
	n, err := entriesWithin(p, 1<<20)
	require.NoError(t, err)
	require.Equal(t, p.Device.IOVAEntries, n, "the policy's, if there is room")
	n, err = entriesWithin(p, 1024)
	require.NoError(t, err)
	require.EqualValues(t, 1024-reservedDescriptors-4*132, n)
	_, err = entriesWithin(p, 512)
	require.ErrorContains(t, err, "raise the limit")
}

func TestTurnstile(t *testing.T) {
	s := newTurnstile(1)
	require.NoError(t, s.enter(context.Background()))
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errStopping)
	require.ErrorIs(t, s.enter(ctx), errStopping)
	s.leave()
	require.NoError(t, s.enter(context.Background()))
}
