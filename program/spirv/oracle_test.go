package spirv_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// stricter lists where Parse deliberately refuses what Khronos's validator accepts.
var stricter = map[string]string{
	"SPV-1023": "the specification reserves the schema, as 0",
	"SPV-1024": "the bound has to be in proportion to the module",
	"SPV-1032": "the specification says that strings are UTF-8",
	"SPV-1042": "a non-semantic instruction between blocks, which the validator does not mind",
	"SPV-1050": "two decorations that contradict each other",
}

// Parse accepts everything that Khronos's validator accepts. CAPGPU_LONG=1 tries
// many modules.
func TestParseRefusesNothingValid(t *testing.T) {
	if _, err := exec.LookPath("spirv-val"); err != nil {
		t.Skip("SKIPPED: spirv-val is not here; install Debian's spirv-tools")
	}

	count := 10
	if os.Getenv("CAPGPU_LONG") != "" {
		count = 1000
	}

	path := filepath.Join(t.TempDir(), "module.spv")
	refused := 0
	for name, data := range modules(t) {
		rng := rand.New(rand.NewPCG(9, uint64(len(data))))
		for range count {
			mutant := spirvtest.Mutate(rng, data)
			_, err := spirv.Parse(mutant)
			if err == nil {
				continue
			}
			refused++
			var refusal *program.Refusal
			require.ErrorAs(t, err, &refusal)
			if stricter[refusal.Code] != "" {
				continue
			}
			require.NoError(t, os.WriteFile(path, mutant, 0o600))
			if exec.Command("spirv-val", "--target-env", "vulkan1.1", path).Run() == nil {
				t.Errorf("%s: spirv-val takes a mutant that Parse refuses: %v", name, err)
			}
		}
	}

	require.NotZero(t, refused)
}
