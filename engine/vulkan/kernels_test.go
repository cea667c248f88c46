package vulkan

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The committed modules of this package, and of the suite of devices, are those of their
// sources (tools/kernels.sh).
func TestModulesAreOfTheirSources(t *testing.T) {
	version, err := os.ReadFile(filepath.Join("..", "..", "program", "library", "VERSION"))
	require.NoError(t, err)
	out, err := exec.Command("glslangValidator", "--version").Output()
	if err != nil {
		t.Skip("SKIPPED: glslangValidator is not here; install Debian's glslang-tools")
	}
	if !strings.Contains(string(out), strings.TrimSpace(string(version))) {
		t.Skipf("SKIPPED: this is another glslang than %s", version)
	}

	count := 0
	for _, dir := range []string{"kernels", "../../gpu/backend/engine/host/devicetest"} {
		sources, err := filepath.Glob(filepath.Join(dir, "*.comp"))
		require.NoError(t, err)
		for _, source := range sources {
			made := filepath.Join(t.TempDir(), "a.spv")
			said, err := exec.Command("glslangValidator", "-V", "--target-env", "vulkan1.1", "-o", made, source).CombinedOutput()
			require.NoError(t, err, "%s", said)
			want, err := os.ReadFile(made)
			require.NoError(t, err)
			have, err := os.ReadFile(strings.TrimSuffix(source, ".comp") + ".spv")
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, have), "%s: run make kernels", source)
			count++
		}
	}
	require.Equal(t, 8, count)
}
