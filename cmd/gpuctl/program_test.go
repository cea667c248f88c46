package main

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/cmd/gpuctl/npy"
	"capgpu/driver/session/sessiontest"
	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// programFolder has the modules of testdata/programs, and more.
func programFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/programs")))
	var x []byte
	for _, v := range []float64{1, 2.5, -3} {
		x = binary.LittleEndian.AppendUint64(x, math.Float64bits(v))
	}

	module, err := os.ReadFile(filepath.Join(dir, "scale.spv"))
	require.NoError(t, err)
	name := "bundled"
	bundle, err := program.Encode(module, &program.Manifest{Name: name})
	require.NoError(t, err)
	for name, content := range map[string][]byte{
		"x.npy":       npyFile(npy.F64, []uint64{3}, x),
		"bundle.cgpb": bundle,
		"cut.spv":     module[:400],
		"empty.spv":   {},
		"refused.spv": refusedModule(),
		"wrong.spv":   module,
		"wrong.json":  []byte(`{"name": "wrong", "bindings": [{"name": "x", "access": "write"}]}`),
		"typo.spv":    module,
		"typo.json":   []byte(`{"nmae": "typo"}`),
		"broken.comp": []byte("#version 450\nvoid main() { x = 1; }\n"),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o666))
	}

	return dir
}

// refusedModule has a function that calls itself.
func refusedModule() []byte {
	b := spirvtest.New()
	void := b.Void()
	fn := b.Func(void)
	b.Do(spirv.OpFunctionCall, void, b.ID(), fn)
	b.Return()
	b.End()
	main := b.Func(void)
	b.Do(spirv.OpFunctionCall, void, b.ID(), fn)
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	return b.Bytes()
}

func TestProgramFiles(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	dir := programFolder(t)
	for _, tc := range []struct {
		name, args string
		exit       int
	}{
		{"file-run", "run DIR/scale.spv --in DIR/x.npy --inline 2 --inline bias=-1 --out DIR/y.npy", 0},
		{"file-run-bundle", "run DIR/bundle.cgpb --in DIR/x.npy --inline 2 --inline bias=-1", 0},
		{"file-run-refused", "run DIR/refused.spv", 4},
		{"file-run-manifest", "run DIR/wrong.spv --in DIR/x.npy", 4},
		{"file-run-typo", "run DIR/typo.spv", 2},
		{"file-run-missing", "run DIR/nosuch.spv", 2},
		{"file-run-empty", "run DIR/empty.spv", 2},
		{"file-disasm", "disasm DIR/scale.spv", 0},
		{"file-disasm-refused", "disasm DIR/refused.spv", 1},
		{"file-disasm-refused-json", "disasm DIR/refused.spv --json", 1},
		{"file-disasm-cut", "disasm DIR/cut.spv", 1},
		{"file-disasm-library", "disasm trap", 0},
		{"file-disasm-nosuch", "disasm nosuch", 4},
		{"file-check", "check DIR/scale.spv --in DIR/x.npy --inline 2 --inline -1", 0},
		{"file-check-race", "check DIR/race.spv --random 128", 1},
		{"file-check-race-json", "check DIR/race.spv --random 128 --json", 1},
		{"file-check-trap", "check trap --random 4", 1},
		{"file-check-bounds", "check DIR/race.spv --random 100 --grid 2", 1},
		{"file-check-refused", "check DIR/refused.spv", 4},
		{"file-help-check", "check --help", 0},
		{"file-help-disasm", "disasm --help", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := gpuctl(context.Background(), map[string]string{"CAPGPU_SOCKET": svc.Socket}, false, strings.Fields(strings.ReplaceAll(tc.args, "DIR", dir))...)
			require.Equal(t, tc.exit, i.exit, "%s%s", &i.out, &i.err)
			i.checkGolden(t, tc.name, dir, strings.Fields(tc.args))
		})
	}

	y, err := os.ReadFile(filepath.Join(dir, "y.npy"))
	require.NoError(t, err)
	var want []byte
	for _, v := range []float64{1, 4, -7} {
		want = binary.LittleEndian.AppendUint64(want, math.Float64bits(v))
	}

	require.Equal(t, npyFile(npy.F64, []uint64{3}, want), y)
}

// TestSources: the compiler is found, its modules run, and its errors are shown.
func TestSources(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	dir := programFolder(t)
	env := map[string]string{"CAPGPU_SOCKET": svc.Socket}
	if _, err := exec.LookPath(compiler); err == nil {
		i := gpuctl(context.Background(), env, false, "run", filepath.Join(dir, "scale.comp"), "--in", filepath.Join(dir, "x.npy"), "--inline", "2", "--inline", "-1")
		require.Zero(t, i.exit, "%s", &i.err)
		require.Contains(t, i.out.String(), "[3] f64  1 4 -7")
		i = gpuctl(context.Background(), env, false, "check", filepath.Join(dir, "race.comp"), "--random", "64")
		require.Equal(t, exitFailed, i.exit, "%s", &i.err)
		require.Contains(t, i.out.String(), "race.comp:10")
		i = gpuctl(context.Background(), env, false, "run", filepath.Join(dir, "broken.comp"))
		require.Equal(t, exitUsage, i.exit)
		require.Contains(t, i.err.String(), "undeclared identifier")
	} else {
		t.Logf("no %s: sources are not compiled here (Debian: glslang-tools)", compiler)
	}

	t.Setenv("PATH", dir)
	i := gpuctl(context.Background(), env, false, "run", filepath.Join(dir, "scale.comp"))
	require.Equal(t, exitUsage, i.exit)
	require.Contains(t, i.err.String(), "glslang-tools")
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "gpuctl-*"))
	require.NoError(t, err)
	require.Empty(t, left, "temporary folders are left")
}

func TestNameOf(t *testing.T) {
	for path, want := range map[string]string{"a/b/My-Kernel 2.comp": "my_kernel_2", "x.spv": "x", "dir/" + strings.Repeat("n", 100) + ".spv": strings.Repeat("n", 64)} {
		require.Equal(t, want, nameOf(path))
	}
}
