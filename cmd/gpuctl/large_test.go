package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/control/server/servertest"
)

// UnmarshalJSON is the inverse of MarshalJSON.
func (n *number) UnmarshalJSON(b []byte) error {
	*n = number(strings.Trim(string(b), `"`))
	return nil
}

// TestLargeRun adds 64 Mi elements, through files on both sides.
func TestLargeRun(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("moves 1.3 GiB")
	}
	svc := servertest.Start(t, servertest.Options{})
	dir := t.TempDir()
	run := func(args ...string) result {
		t.Helper()
		i := gpuctl(context.Background(), nil, false, append([]string{"--json", "--socket", svc.Socket, "run"}, args...)...)
		require.Equal(t, 0, i.exit, "%s", &i.out)
		var r result
		require.NoError(t, json.Unmarshal(i.out.Bytes(), &r))
		return r
	}
	const n = 64 << 20
	a, c := filepath.Join(dir, "a.npy"), filepath.Join(dir, "c.npy")
	r := run("copy", "--random", "67108864", "--type", "f32", "--out", a)
	require.Equal(t, uint64(n), r.Elements)
	r = run("vecadd_f32", "--in", a, "--in", a, "--out", c)
	require.Equal(t, uint64(n), r.Elements)
	require.Equal(t, []uint64{n}, r.Outputs[0].Shape)
	in, err := os.ReadFile(a)
	require.NoError(t, err)
	out, err := os.ReadFile(c)
	require.NoError(t, err)
	require.Len(t, out, len(in))
	// Doubling a float adds one to its exponent: zero stays zero.
	for i := 128; i < len(in); i += 4 * 10007 {
		var x, y uint32
		for b := 3; b >= 0; b-- {
			x, y = x<<8|uint32(in[i+b]), y<<8|uint32(out[i+b])
		}
		if x != 0 {
			x += 1 << 23
		}
		if x != y {
			t.Fatalf("element %d: %#x, want %#x", (i-128)/4, y, x)
		}
	}
}
