package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFresh: the committed files are gen's output, and there are no others.
func TestFresh(t *testing.T) {
	all, err := filepath.Glob("../z*.go")
	require.NoError(t, err)
	require.Len(t, all, len(files()))
	for name, want := range files() {
		got, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.True(t, string(want) == string(got), "%s: run go generate ./program/lane/vec", name)
	}
}
