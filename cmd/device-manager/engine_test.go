package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEngineOptions(t *testing.T) {
	for want, args := range map[string][]string{
		"--engine is":         {"--dev", "--engine", "cuda"},
		"exclude each other":  {"--dev", "--engine", "lane", "--vulkan"},
		"are for developer":   {"--vulkan"},
		"leave out --policy":  {"--dev", "--vulkan", "--policy", "x"},
		"developer mode: add": {"--engine", "lane"},
	} {
		_, _, err := parseOptions(args, io.Discard)
		require.ErrorContains(t, err, want)
	}

	dir := t.TempDir()
	o, _, err := parseOptions([]string{"--dev", "--engine", "lane", "--engine-launcher", filepath.Join(dir, "gpu-engine-launch")}, io.Discard)
	require.NoError(t, err)
	_, err = o.policy()
	require.ErrorContains(t, err, "gpu-engine-lane, which runs the device, is missing")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "gpu-engine-lane"), nil, 0o755))
	p, err := o.policy()
	require.NoError(t, err)
	require.False(t, p.Hardware())
	require.Len(t, p.Functions, 1)
	require.Equal(t, "lane0", p.Functions[0].Name)
	require.Equal(t, "lane", p.Functions[0].Node.Kind)
}
