package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestRun(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{
		// With the race detector, on a busy machine, its work takes seconds.
		Config: func(c *gpu.Config) { c.DefaultDeadline = gpu.DefaultMaxDeadline },
	})
	var out strings.Builder
	require.NoError(t, run(context.Background(), svc.Socket, &out))
	require.Equal(t, "c[255][255] = 131070\n", out.String())
}
