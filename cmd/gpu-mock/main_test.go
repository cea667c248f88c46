package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestByHand(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, run([]string{"--help"}, &out, &errs))
	require.Contains(t, out.String(), "started by\ndevice-manager")
	require.Zero(t, run([]string{"--version"}, &out, &errs))
	require.Equal(t, 2, run([]string{"--fault"}, &out, &errs))
	require.Equal(t, 2, run([]string{"what"}, &out, &errs))
	require.Contains(t, errs.String(), `unexpected argument "what"`)
	require.Equal(t, 2, run([]string{"--engine", "steam"}, &out, &errs))
	require.Contains(t, errs.String(), `"steam"; it is auto or lane`)
	require.Equal(t, 2, run([]string{"--subgroup=24"}, &out, &errs))
	require.Contains(t, errs.String(), "24; it is 8, 16, 32 or 64")
	// Descriptors 3 and 4 of a test binary may be anything, but no links.
	errs.Reset()
	require.Equal(t, 1, run(nil, &out, &errs))
	require.Contains(t, errs.String(), "a driver is started by device-manager")
}

func TestFaultScript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults.json")
	_, err := readScript(path)
	require.ErrorContains(t, err, "read the fault script")
	require.NoError(t, os.WriteFile(path, []byte(`{"faults": [{"kind": "hang", "job": 3}]}`), 0o600))
	s, err := readScript(path)
	require.NoError(t, err)
	require.Len(t, s.Faults, 1)
	same, err := readScript(` {"faults": [{"kind": "hang", "job": 3}]}`)
	require.NoError(t, err)
	require.Equal(t, s, same, "by the text itself")
	require.NoError(t, os.WriteFile(path, []byte(`{"faults": [{"kind": "nonsense"}]}`), 0o600))
	_, err = readScript(path)
	require.ErrorContains(t, err, path)
}
