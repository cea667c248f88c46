package lane

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// glsl compiles a compute shader, unoptimised and with lines. Modules are kept in
// testdata by their source, so that the tests are quick and need no tool; a new
// source adds one.
func glsl(t testing.TB, source string) []byte {
	t.Helper()
	return glslFor(t, "vulkan1.1", source)
}

// glslFor is glsl for another environment.
func glslFor(t testing.TB, env, source string) []byte {
	t.Helper()
	if !strings.Contains(source, "#version") {
		source = "#version 450\n" + source
	}

	key := source
	if env != "vulkan1.1" {
		key = env + source
	}
	kept := fmt.Sprintf("testdata/%x.spv", sha256.Sum256([]byte(key)))[:30] + ".spv"
	if code, err := os.ReadFile(kept); err == nil {
		return code
	}

	tool, err := exec.LookPath("glslangValidator")
	if err != nil {
		t.Skip("glslangValidator is not here: install the package glslang-tools")
	}

	dir := t.TempDir()
	in, out := filepath.Join(dir, "a.comp"), filepath.Join(dir, "a.spv")
	require.NoError(t, os.WriteFile(in, []byte(source), 0o600))
	cmd := exec.Command(tool, "-V", "-g", "--target-env", env, "-o", out, "a.comp")
	cmd.Dir = dir
	msg, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", msg)
	code, err := os.ReadFile(out)
	require.NoError(t, err)
	if os.Getenv("FILE") == "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(kept, code, 0o644))
	}

	return code
}

// describe makes a Program of a module without the verifier's checks.
func describe(t testing.TB, code []byte) *verify.Program {
	t.Helper()
	m, err := spirv.Parse(code)
	require.NoError(t, err)
	p := &verify.Program{Module: m, Info: program.Info{Block: program.Dim3{X: 1, Y: 1, Z: 1}}}
	for _, f := range m.Functions {
		if f.ID() == m.EntryPoints[0].Arg(1) {
			p.Entry = f
		}
	}

	for i := range m.Modes {
		if x := &m.Modes[i]; spirv.ExecutionMode(x.Args[1]) == spirv.ExecutionModeLocalSize {
			p.Info.Block = program.Dim3{X: x.Args[2], Y: x.Args[3], Z: x.Args[4]}
		}
	}

	p.Bindings = make([]spirv.ID, 16)
	for i := range m.Globals {
		g := &m.Globals[i]
		if d, ok := m.Decoration(g.Result, spirv.DecorationSpecId); ok && g.Result != 0 {
			switch id := literal(d); id {
			case 0, 1, 2:
				p.BlockIDs[id] = g.Result
				if p.Sizes == nil {
					p.Sizes = map[spirv.ID]int{}
				}
				p.Sizes[g.Result] = int(id)
				p.Info.BlockFree = true
			case 3:
				p.Dynamic = g.Result
				p.Info.DynamicElementBytes = 4
			}
		}

		if g.Op != spirv.OpVariable {
			continue
		}

		switch spirv.StorageClass(g.Args[0]) {
		case spirv.StorageClassStorageBuffer, spirv.StorageClassUniform:
			d, _ := m.Decoration(g.Result, spirv.DecorationBinding)
			p.Bindings[literal(d)] = g.Result
		case spirv.StorageClassPushConstant:
			p.Inline = g.Result
			p.Info.InlineBytes = 128
		case spirv.StorageClassWorkgroup:
			p.Shared = append(p.Shared, g.Result)
		}
	}

	return p
}
