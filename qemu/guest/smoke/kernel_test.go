package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/library"
)

// The committed module is the output of its source, with the compiler of the library's
// modules.
func TestModuleIsOfItsSource(t *testing.T) {
	compiler, err := exec.LookPath("glslangValidator")
	if err != nil {
		t.Skip("SKIPPED: glslangValidator is missing (apt-get install glslang-tools)")
	}
	said, err := exec.Command(compiler, "--version").Output()
	require.NoError(t, err)
	want, err := os.ReadFile("../../../program/library/VERSION")
	require.NoError(t, err)
	if !strings.Contains(string(said), strings.TrimSpace(string(want))) {
		t.Skipf("SKIPPED: the modules were made with glslang %s, whose bytes differ", bytes.TrimSpace(want))
	}
	out := filepath.Join(t.TempDir(), "mirror.spv")
	log, err := exec.Command(compiler, "-V", "--target-env", "vulkan1.1", "-o", out, "kernel/mirror.comp").CombinedOutput()
	require.NoError(t, err, "%s", log)
	fresh, err := os.ReadFile(out)
	require.NoError(t, err)
	require.True(t, bytes.Equal(fresh, mirror), "kernel/mirror.spv is not what kernel/mirror.comp makes")
	for _, name := range library.Names() {
		bundle, _ := library.Bundle(name)
		require.False(t, bytes.Contains(bundle, mirror), "the device has it already")
	}
}
