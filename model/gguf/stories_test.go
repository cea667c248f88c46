package gguf_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/gguf"
	"capgpu/model/modeltest"
)

func stories(t testing.TB) *model.File {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(modeltest.Stories(t), "stories260Ktok512.gguf"))
	require.NoError(t, err)
	f, err := gguf.Load(data)
	require.NoError(t, err)
	return f
}
