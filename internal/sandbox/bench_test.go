package sandbox

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/internal/sandbox/devguard"
)

// BenchmarkStart measures the cost of confinement for a process from its start to its end.
func BenchmarkStart(b *testing.B) {
	path, err := static()
	require.NoError(b, err)
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command(path)
			cmd.Env = []string{intruderEnv + "=none nothing"}
			require.NoError(b, cmd.Run())
		}
	})
	b.Run("confined", func(b *testing.B) {
		j, err := New(Options{GuardDevices: devguard.Attach})
		require.NoError(b, err)
		defer j.Close()
		for b.Loop() {
			c, err := j.Cell("bench", Driver, Limits{MemoryBytes: 1 << 30, Pids: 100})
			require.NoError(b, err)
			cmd := exec.Command(path)
			cmd.Env = []string{intruderEnv + "=driver nothing"}
			require.NoError(b, c.Start(cmd))
			require.NoError(b, cmd.Wait())
			require.NoError(b, c.Close())
		}
	})
}
