package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestRun(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	var out, perf strings.Builder
	require.NoError(t, run(context.Background(), svc.Socket, &out, &perf))
	require.Equal(t, "0.5\n1.5\n2.5\n3.5\n4.5\n5.5\n6.5\n7.5\n", out.String())
	require.Contains(t, perf.String(), "overlap_ns")
}
