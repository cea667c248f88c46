package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestByHand(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, run([]string{"--help"}, &out, &errs))
	require.Contains(t, out.String(), "gpu-engine-launch")
	for _, args := range [][]string{nil, {"--nonsense"}} {
		errs.Reset()
		require.Equal(t, 2, run(args, &out, &errs))
	}
	require.Equal(t, 2, run(nil, &out, &errs))
	require.Contains(t, errs.String(), "is started by device-manager")
	errs.Reset()
	require.Equal(t, 1, run([]string{`{"program":"engine"}`}, &out, &errs))
	require.Contains(t, errs.String(), "is no absolute path")
}
