package engine_test

import (
	"os"
	"testing"

	"capgpu/gpu/backend/engine/enginetest"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.Run(m, enginetest.Clean)) }

// TestConformance: processes on the host's memory, and with the race detector here such with
// memory of their own. CAPGPU_LONG has both.
func TestConformance(t *testing.T) {
	for name, flags := range map[string][]string{"unified": nil, "discrete": {enginetest.Local(1 << 20)}} {
		if raceEnabled == (flags == nil) && os.Getenv("CAPGPU_LONG") == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			engines := enginetest.Start(t, 8, enginetest.Flags(flags...))
			enginetest.Conformance(t, engines, flags != nil)
		})
	}
}
