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
	var out strings.Builder
	require.NoError(t, run(context.Background(), svc.Socket, &out))
	require.Equal(t, "sum = 4718580\n", out.String())
}
