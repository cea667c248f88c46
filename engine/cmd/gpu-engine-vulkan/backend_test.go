package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/enginetest"
)

// TestBackend runs the suite of backends over processes of this command on lavapipe: on the
// host's memory, and with memory of the device's own.
func TestBackend(t *testing.T) {
	d := lavapipe(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for _, pair := range environment(d) {
		t.Setenv(pair[0], pair[1])
	}
	for name, flags := range map[string][]string{"unified": nil, "discrete": {"--local"}} {
		t.Run(name, func(t *testing.T) {
			enginetest.Conformance(t, enginetest.StartProgram(t, self, 4, enginetest.Flags(flags...)), flags != nil)
		})
	}
}
