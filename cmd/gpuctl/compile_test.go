package main

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/cmd/gpuctl/npy"
	"capgpu/driver/session/sessiontest"
)

// builtSource needs a newer environment, two macros, and a file of another folder.
const builtSource = `#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#include "scale.glsl"
layout(local_size_x = WIDTH) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) buffer Y { uint y[]; };
layout(binding = 2) buffer Z { uint z[]; };
#ifdef EVEN
void main() {
	uint i = gl_GlobalInvocationID.x;
	if (x[i] % 2 == 0) y[i] = scaled(x[i]);
	if (i < 2) z[i] = gl_WorkGroupSize.x;
}
#endif
`

// TestBuildLines: a source is compiled as its build does, by either compiler.
func TestBuildLines(t *testing.T) {
	dir := t.TempDir()
	include := filepath.Join(dir, "include")
	require.NoError(t, os.Mkdir(include, 0o700))
	source := filepath.Join(dir, "k.glsl")
	require.NoError(t, os.WriteFile(source, []byte(builtSource), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(include, "scale.glsl"), []byte("uint scaled(uint x) { return x * 10; }\n"), 0o600))

	c := compileArgs{TargetEnv: "spirv1.5", Define: []string{"WIDTH=8", "EVEN"}, Include: []string{include}}
	require.Equal(t, []string{"-fshader-stage=compute", "-o", "m.spv", "--target-env=vulkan1.2", "--target-spv=spv1.5", "-DWIDTH=8", "-DEVEN", "-I" + include, source},
		c.commandLine(glslc, source, "m.spv", false))
	for _, bad := range []compileArgs{{TargetEnv: "opengl"}, {Define: []string{"-o/etc/x"}}, {Define: []string{"=1"}}, {Include: []string{source}}} {
		require.Error(t, bad.check(), "%+v", bad)
	}

	if _, err := exec.LookPath(glslang); err != nil {
		t.Skipf("SKIPPED: %s is not here; install Debian's glslang-tools", glslang)
	}
	svc := sessiontest.Start(t, sessiontest.Options{})
	env := map[string]string{"CAPGPU_SOCKET": svc.Socket}
	run := func(args ...string) *invocation {
		return gpuctl(context.Background(), env, false, append([]string{"run", source}, args...)...)
	}

	i := run("--in", "x=range:8", "--in", "y=zeros:8", "--out-shape", "z=2", "--type", "u32")
	require.Equal(t, exitUsage, i.exit)
	require.Contains(t, i.err.String(), "--target-env, -D and -I")
	i = run("--target-env", "spirv1.5", "-DWIDTH=8", "-D", "EVEN", "-I"+include, "--in", "x=range:8", "--in", "y=range:8", "--out-shape", "z=2")
	require.Zero(t, i.exit, "%s", &i.err)
	require.Contains(t, i.out.String(), "[8] u32  0 1 20 3 40 5")
	require.Contains(t, i.out.String(), "[2] u32  8 8")

	i = gpuctl(context.Background(), env, false, "run", "vecadd_f32", "-D", "X", "--random", "8")
	require.Equal(t, exitUsage, i.exit)
	require.Contains(t, i.err.String(), "are for a source")
}

// TestMadeInput: zeros, ranges and random numbers of each type.
func TestMadeInput(t *testing.T) {
	for _, bad := range []string{"zeros:", "range:0", "random:x", "zeros:1x2x3"} {
		_, err := madeInput("x", bad)
		require.Error(t, err, bad)
	}
	in, err := madeInput("x", "./zeros:8")
	require.NoError(t, err)
	require.Nil(t, in, "a file")

	fill := func(arg string, d npy.DType) []byte {
		in, err := madeInput("x", arg)
		require.NoError(t, err)
		in.dtype = d
		b := make([]byte, in.bytes())
		half := len(b) / 2 / int(d.Bytes()) * int(d.Bytes())
		next := in.generator(1, 2)
		require.NoError(t, next(b[:half]))
		require.NoError(t, next(b[half:]))
		return b
	}
	require.Equal(t, []byte{0, 1, 2, 3, 4, 5}, fill("range:2x3", npy.U8))
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0x80, 0x3F, 0, 0, 0, 0x40}, fill("range:3", npy.F32))
	require.Equal(t, make([]byte, 40), fill("zeros:5", npy.F64))
	require.Equal(t, fill("random:9", npy.F32), fill("random:9", npy.F32))
	require.NotEqual(t, make([]byte, 36), fill("random:9", npy.F32))

	for n := range uint64(1 << 16) {
		require.Equal(t, halfOf(float64(n)), halfCount(n), "%d", n)
	}
}

// halfOf is the nearest of all 16-bit floats from 0 up, the even one of two.
func halfOf(x float64) uint16 {
	value := func(h uint16) float64 {
		if h>>10 == 0 {
			return float64(h) * 0x1p-24
		}
		return math.Ldexp(1+float64(h&0x3ff)/1024, int(h>>10)-15)
	}
	lo, hi := uint16(0), uint16(0x7C00)
	for lo+1 < hi {
		if middle := (lo + hi) / 2; value(middle) <= x {
			lo = middle
		} else {
			hi = middle
		}
	}
	down, up := x-value(lo), value(hi)-x
	if down < up || down == up && lo&1 == 0 {
		return lo
	}
	return hi
}
