package residue

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// bin is the directory of the built commands.
var bin string

// TestMain builds the commands. The tenant that leaves residue is this test binary.
func TestMain(m *testing.M) {
	runIfDirty()
	dir, err := os.MkdirTemp("", "capgpu-residue")
	if err == nil {
		var out []byte
		if out, err = exec.Command("../../tools/build.sh", dir, "device-manager", "gpu-mock", "gpu-gate", "gpuctl").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	bin = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
