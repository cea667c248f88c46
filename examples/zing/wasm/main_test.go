package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
)

// TestRun: a guest that the Go compiler made into WebAssembly adds two vectors.
func TestRun(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.Command("go", "build", "-o", binary, "./guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	code, err := os.ReadFile(binary)
	require.NoError(t, err)

	svc := sessiontest.Start(t, sessiontest.Options{})
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), svc.Socket, code, &out))
	require.Equal(t, "0.5\n1.5\n2.5\n3.5\n", out.String())
	require.Error(t, run(context.Background(), svc.Socket, code[:100], &out))
}
