package library

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
)

func TestNames(t *testing.T) {
	require.Equal(t, []string{
		"argmax_f32", "attention_cache_f32", "attention_f32", "copy", "embed_bf16", "embed_f16", "embed_f32",
		"embed_i8", "embed_iq4_nl", "embed_iq4_xs", "embed_mxfp4", "embed_q2_k", "embed_q3_k", "embed_q4_0",
		"embed_q4_1", "embed_q4_k", "embed_q5_0", "embed_q5_1", "embed_q5_k", "embed_q6_k", "embed_q8_0", "fill_u32",
		"geglu_rows_f32", "head_norm_f32", "histogram_u32", "layernorm_f32", "linear_bf16", "linear_f16", "linear_f32", "linear_i8", "linear_iq4_nl",
		"linear_iq4_xs", "linear_mxfp4", "linear_q2_k", "linear_q3_k", "linear_q4_0", "linear_q4_1", "linear_q4_k",
		"linear_q5_0", "linear_q5_1", "linear_q5_k", "linear_q6_k", "linear_q8_0", "matmul_f32", "matmul_tiled_f32",
		"matvec_f32", "matvec_q8_0", "matvec_wg_f32", "matvec_wg_q8_0", "next_token_f32", "reduce_f32", "rmsnorm_f32",
		"rope_cache_f32", "rope_f32", "sample_topk_f32", "saxpy_f32", "scan_f32", "scan_u32", "softcap_f32", "softmax_f32", "spin",
		"swiglu_f32", "swiglu_rows_f32", "topk_f32", "trap", "vecadd_f32"}, Names())
	names := Names()
	names[0] = "mine"
	require.Equal(t, "argmax_f32", Names()[0])
}

func TestBundles(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, name := range Names() {
		bundle, ok := Bundle(name)
		require.True(t, ok, name)
		digest, ok := Digest(name)
		require.True(t, ok, name)
		require.Equal(t, sha256.Sum256(bundle), digest)
		require.Empty(t, seen[digest], name)
		seen[digest] = name

		b, err := program.Parse(bundle)
		require.NoError(t, err)
		require.Equal(t, name, b.Manifest.Name)
		require.Equal(t, digest, b.Digest)
		again, err := program.Encode(b.SPIRV, b.Manifest)
		require.NoError(t, err)
		require.Equal(t, bundle, again, "%s is not canonical", name)
	}

	_, ok := Bundle("nothing")
	require.False(t, ok)
	_, ok = Digest("nothing")
	require.False(t, ok)
}

// Each kernel has its three files, and there is no other file.
func TestFiles(t *testing.T) {
	for _, pattern := range []string{"*.comp", "*.spv", "*.json"} {
		list, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for i, f := range list {
			list[i] = strings.TrimSuffix(f, filepath.Ext(f))
		}
		slices.Sort(list)
		require.Equal(t, Names(), list, pattern)
	}
}

// tool skips the test if a tool is missing.
func tool(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: no %s here; install the Debian package %s", name, debian)
	}
	return path
}

// The committed modules are the output for the sources, with the compiler that made
// them.
func TestModulesAreOfTheSources(t *testing.T) {
	compiler := tool(t, "glslangValidator", "glslang-tools")
	said, err := exec.Command(compiler, "--version").Output()
	require.NoError(t, err)
	have, _, _ := strings.Cut(string(said), "\n")
	have = strings.TrimPrefix(have, "Glslang Version: ")
	want, err := os.ReadFile("VERSION")
	require.NoError(t, err)
	if have != strings.TrimSpace(string(want)) {
		t.Skipf("SKIPPED: this is glslang %s, the kernels were made with %s, whose bytes differ", have, bytes.TrimSpace(want))
	}

	dir := t.TempDir()
	out, err := exec.Command("../../tools/kernels.sh", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, made, len(Names()))
	for _, name := range Names() {
		fresh, err := os.ReadFile(filepath.Join(dir, name+".spv"))
		require.NoError(t, err)
		committed, err := os.ReadFile(name + ".spv")
		require.NoError(t, err)
		require.True(t, bytes.Equal(fresh, committed), "%s.spv is not what %s.comp makes: make kernels", name, name)
	}
}

func TestModulesAreValid(t *testing.T) {
	validator := tool(t, "spirv-val", "spirv-tools")
	for _, name := range Names() {
		out, err := exec.Command(validator, "--target-env", "vulkan1.1", name+".spv").CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
}
