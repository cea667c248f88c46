package verify_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/verify"
)

// modules are the real modules of the tests, by name: glslangValidator's output for
// the sources in testdata and of the library, and spirv-opt's for some.
func modules(t testing.TB) map[string][]byte {
	var files []string
	for _, dir := range []string{"testdata", "testdata/warn", "../library"} {
		list, err := filepath.Glob(dir + "/*.spv")
		require.NoError(t, err)
		require.NotEmpty(t, list)
		files = append(files, list...)
	}
	all := map[string][]byte{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(f), ".spv")] = data
	}
	return all
}

func TestRealModules(t *testing.T) {
	for name, data := range modules(t) {
		p, err := verify.Admit(data, verify.DefaultLimits())
		require.NoError(t, err, name)
		t.Logf("%s: %v %v warnings %v", name, p.Info.Bindings, p.Info.Features, p.Info.Warnings)
	}
}
