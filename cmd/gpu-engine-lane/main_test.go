package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host/lanedevice"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestByHand(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, run([]string{"--help"}, &out, &errs))
	for _, f := range lanedevice.Faults {
		require.Contains(t, out.String(), string(f))
	}
	require.Zero(t, run([]string{"--version"}, &out, &errs))
	require.Equal(t, 2, run([]string{"--subgroup=24"}, &out, &errs))
	require.Equal(t, 2, run([]string{"--fault=steam"}, &out, &errs))
	require.Contains(t, errs.String(), `"steam"; it is one of crash hang`)
}
