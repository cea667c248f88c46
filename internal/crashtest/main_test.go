package crashtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "client" {
		os.Exit(runClient(os.Args[2], os.Args[3]))
	}
	os.Exit(leakcheck.Run(m, func() {
		if programs.dir != "" {
			os.RemoveAll(programs.dir)
		}
	}))
}

// programs are the tagged ones, built when a test first wants them.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

func program(t *testing.T, name string) string {
	t.Helper()
	programs.once.Do(func() { programs.err = buildPrograms() })
	require.NoError(t, programs.err)
	return filepath.Join(programs.dir, name)
}

func buildPrograms() (err error) {
	if programs.dir, err = os.MkdirTemp("", "cgcrash"); err != nil {
		return err
	}
	if err := os.Chmod(programs.dir, 0o755); err != nil { // for the users of the children
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "crashpoint", "-o", programs.dir+"/",
		"capgpu/cmd/device-manager", "capgpu/cmd/gpu-mock", "capgpu/cmd/gpu-gate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // only static programs are confined
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
