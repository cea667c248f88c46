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
		"x.npy":        npyFile(npy.F64, []uint64{3}, x),
		"bundle.cgpb":  bundle,
		"cut.spv":      module[:400],
		"empty.spv":    {},
		"refused.spv":  refusedModule(),
		"geometry.spv": geometryModule(),
		"special.spv":  specialModule(),
		"x.u32":        {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0},
		"wrong.spv":    module,
		"wrong.json":   []byte(`{"name": "wrong", "bindings": [{"name": "x", "access": "write"}]}`),
		"typo.spv":     module,
		"typo.json":    []byte(`{"nmae": "typo"}`),
		"broken.comp":  []byte("#version 450\nvoid main() { x = 1; }\n"),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o666))
	}

	return dir
}

// geometryModule has several things that the profile has not.
func geometryModule() []byte {
	b := spirvtest.New()
	b.Capability(spirv.CapabilityGeometry)
	b.Extension("SPV_KHR_variable_pointers")
	main := b.Func(b.Void())
	b.Op(spirv.OpDPdx, b.Float(32), b.F32(1))
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	return b.Bytes()
}

// specialModule multiplies each word by a constant of the source, if another says so;
// its workgroup is a third.
func specialModule() []byte {
	b := spirvtest.New()
	u := b.Uint(32)
	width := b.Name(b.Spec(0, u, 4), "WIDTH")
	gain := b.Name(b.Spec(1, b.Float(32), math.Float32bits(1)), "gain")
	flag := b.Name(b.SpecBool(2, false), "flag")
	size := b.SpecComposite(b.Vec(u, 3), width, b.U32(1), b.U32(1))
	b.Decorate(size, spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
	buffer := b.Name(b.Buffer(0, u, 4), "x")
	index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
	main := b.Func(b.Void())
	p := b.Access(spirv.StorageClassStorageBuffer, u, buffer, b.U32(0), b.Load(u, index))
	x := b.Op(spirv.OpConvertUToF, b.Float(32), b.Load(u, p))
	scaled := b.Op(spirv.OpConvertFToU, u, b.Op(spirv.OpFMul, b.Float(32), x, gain))
	b.Store(p, b.Op(spirv.OpSelect, u, flag, scaled, b.U32(9)))
	b.Return()
	b.End()
	b.Compute(main, "main", 0, 0, 0)
	return b.Bytes()
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
		{"file-disasm-why", "disasm DIR/geometry.spv --why", 1},
		{"file-disasm-const", "disasm DIR/special.spv --const WIDTH=64 --why", 0},
		{"file-const", "check DIR/special.spv --in DIR/x.u32 --out DIR/special.u32 --const 1=2.5 --const flag=true --const WIDTH=8", 0},
		{"file-const-value", "check DIR/special.spv --random 8 --const flag=maybe", 2},
		{"file-const-name", "check DIR/special.spv --random 8 --const depth=1", 2},
		{"file-const-twice", "check DIR/special.spv --random 8 --const 1=1 --const gain=2", 2},
		{"file-const-run", "run vecadd_f32 --random 8 --const 1=1", 2},
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
	x, err := os.ReadFile(filepath.Join(dir, "special.u32"))
	require.NoError(t, err)
	want = nil
	for _, v := range []uint32{2, 5, 7, 10, 12, 15, 17, 20} {
		want = binary.LittleEndian.AppendUint32(want, v)
	}
	require.Equal(t, want, x)
}

// TestSources: the compiler is found, its modules run, and its errors are shown.
func TestSources(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	dir := programFolder(t)
	env := map[string]string{"CAPGPU_SOCKET": svc.Socket}
	if _, err := exec.LookPath(glslang); err == nil {
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
		t.Logf("no %s: sources are not compiled here (Debian: glslang-tools)", glslang)
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
