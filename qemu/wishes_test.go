package qemu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWishes(t *testing.T) {
	w := newWishes()
	for _, part := range []string{"hello\ncapgpu-host: dev", "ice_del edu0\n", "capgpu-host: device_del edu1\ncapgpu-host: half"} {
		n, err := w.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.Len(t, w.todo, 2)
	require.Equal(t, "device_del edu0", <-w.todo)
	// When a guest is booted again, the wishes and the half lines of the last boot are gone.
	w.forget()
	require.Empty(t, w.todo)
	_, err := w.Write([]byte("capgpu-host: device_del edu1\n"))
	require.NoError(t, err)
	require.Equal(t, "device_del edu1", <-w.todo)
}
