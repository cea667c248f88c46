// Package examples_test holds the committed modules of the examples to their sources.
package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModulesAreOfTheirSources(t *testing.T) {
	compiler, err := exec.LookPath("glslangValidator")
	if err != nil {
		t.Skip("glslangValidator is not installed (Debian: apt-get install glslang-tools)")
	}

	said, err := exec.Command(compiler, "--version").Output()
	require.NoError(t, err)
	want, err := os.ReadFile("../program/library/VERSION")
	require.NoError(t, err)
	if !strings.Contains(string(said), "Glslang Version: "+strings.TrimSpace(string(want))+"\n") {
		t.Skipf("the modules are of glslang %s, this is another", want)
	}

	sources, err := filepath.Glob("*/*.comp")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, source := range sources {
		out := filepath.Join(t.TempDir(), "module.spv")
		text, err := exec.Command(compiler, "-V", "--target-env", "vulkan1.1", "-o", out, source).CombinedOutput()
		require.NoError(t, err, "%s", text)
		fresh, err := os.ReadFile(out)
		require.NoError(t, err)
		committed, err := os.ReadFile(strings.TrimSuffix(source, ".comp") + ".spv")
		require.NoError(t, err)
		require.Equal(t, fresh, committed, "%s: make kernels", source)
	}
}
