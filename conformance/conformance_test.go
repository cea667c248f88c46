package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/conformance"
	"capgpu/conformance/local"
	"capgpu/internal/leakcheck"
)

// bin is the directory of the service's programs.
var bin string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests is leakcheck.Main with programs to build first and remove at the end.
func runTests(m *testing.M) int {
	if bin = os.Getenv("CAPGPU_TEST_PROGRAMS"); bin == "" {
		dir, err := os.MkdirTemp("", "capgpu-test")
		if err == nil {
			defer os.RemoveAll(dir)
			bin = dir
			build := exec.Command("go", "build", "-o", dir+"/", "capgpu/cmd/device-manager", "capgpu/cmd/gpu-mock", "capgpu/cmd/gpu-gate")
			build.Env = append(os.Environ(), "CGO_ENABLED=0") // as installed; only static programs are confined
			var out []byte
			if out, err = build.CombinedOutput(); err == nil {
				build = exec.Command("go", "build", "-o", dir+"/"+local.OtherVersion, "-ldflags", "-X main.stateVersion=99", "capgpu/cmd/gpu-mock")
				build.Env = append(os.Environ(), "CGO_ENABLED=0")
				out, err = build.CombinedOutput()
			}
			if err != nil {
				err = fmt.Errorf("build: %w\n%s", err, out)
			}
		}

		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return leakcheck.Run(m, nil)
}

// size is full on request.
func size() conformance.Size {
	if os.Getenv("CAPGPU_CONFORMANCE_FULL") != "" {
		return conformance.Full
	}
	return conformance.Short
}

func start(t *testing.T, o local.Options) *local.Stack {
	o.Bin = bin
	s, err := local.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s)
		}
		require.NoError(t, s.Close())
	})
	return s
}

func TestMock(t *testing.T) {
	for _, transport := range []local.Transport{local.GoClient, local.Capnp} {
		t.Run(transport.String(), func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, start(t, local.Options{Transport: transport}), size())
		})
	}
}

func TestDiscreteMock(t *testing.T) {
	for _, transport := range []local.Transport{local.GoClient, local.Capnp} {
		t.Run(transport.String(), func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, start(t, local.Options{Transport: transport, Discrete: true}), size())
		})
	}
}

// TestHardwareEdu runs in a guest that has two edu functions; see qemu.TestHardwareUnits.
func TestHardwareEdu(t *testing.T) {
	functions := strings.FieldsFunc(os.Getenv("CAPGPU_HW"), func(r rune) bool { return r == ',' })
	if len(functions) < 2 {
		t.Skip("CAPGPU_HW names no two edu functions")
	}
	for _, transport := range []local.Transport{local.GoClient, local.Capnp} {
		t.Run(transport.String(), func(t *testing.T) {
			conformance.Run(t, start(t, local.Options{Transport: transport, Functions: functions[:2]}), size())
		})
	}
}
