package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ring"
)

// attach is the client's end of a real ring, in the same process.
func attach(t testing.TB, s *Session, h Handle) *ring.Client {
	t.Helper()
	c := attachNow(t, s, h)
	t.Cleanup(func() { c.Close() })
	return c
}

// attachNow is attach where the caller closes.
func attachNow(t testing.TB, s *Session, h Handle) *ring.Client {
	t.Helper()
	memory, sq, cq, err := s.QueueFDs(h)
	require.NoError(t, err)
	c, err := ring.Attach(memory, sq, cq)
	require.NoError(t, err)
	return c
}
