package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The generated file is the generator's output for the grammar here, if that has
// the same version.
func TestGeneratedFileIsCurrent(t *testing.T) {
	const dir = "/usr/include/spirv/unified1"
	if _, err := os.Stat(filepath.Join(dir, "spirv.core.grammar.json")); err != nil {
		t.Skip("SKIPPED: the grammar is not here; install Debian's spirv-headers")
	}
	have, err := os.ReadFile("../zgrammar.go")
	require.NoError(t, err)
	first := firstLine(read(filepath.Join(dir, "spirv.core.grammar.json")))
	if !bytes.HasPrefix(have, []byte(first)) {
		t.Skipf("SKIPPED: the grammar here is another version: %s", first)
	}
	require.True(t, bytes.Equal(have, generate(dir)), "run go generate ./program/spirv")
}
