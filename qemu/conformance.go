package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"capgpu/conformance"
	"capgpu/conformance/local"
)

// Conformance is one run of the suite of behaviours (package conformance) on both devices
// that this project has: the mock on this host, and edu in a guest.
type Conformance struct {
	Full    bool                             // the counts of the behaviours' sources
	Devices []string                         // "mock", "discrete", "edu"; none: all
	Run     string                           // regular expression of the numbers to run, as "0[14]"; "" = all
	Logf    func(format string, args ...any) // gets the progress; may be nil
}

// Results runs it. An error means that there are no results, never that some failed; it
// contains the output of the tests.
func (x Conformance) Results(ctx context.Context) (all []conformance.Result, err error) {
	repo, err := RepoRoot()
	if err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp("", "capgpu-conformance-")
	if err != nil {
		return nil, err
	}

	defer os.RemoveAll(dir)
	suite := filepath.Join(dir, "conformance.test")
	if _, err := command(ctx, repo, "env", "CGO_ENABLED=0", "go", "test", "-c", "-ldflags=-s -w", "-o", suite, "./conformance"); err != nil {
		return nil, err
	}

	devices := x.Devices
	if len(devices) == 0 {
		devices = []string{"mock", "discrete", "edu"}
	}

	for _, device := range devices {
		var text string
		switch device {
		case "mock":
			text, err = x.mock(ctx, repo, dir, suite, "TestMock")
		case "discrete":
			text, err = x.mock(ctx, repo, dir, suite, "TestDiscreteMock")
		case "edu":
			text, err = x.edu(ctx, repo, dir, suite)
		default:
			err = fmt.Errorf("there is no device %q; there are mock, discrete and edu", device)
		}
		if err != nil {
			return all, err
		}
		some := resultsIn(text)
		if len(some) == 0 {
			return all, fmt.Errorf("the suite on %s told no results; it printed:\n%s", device, text)
		}
		all = append(all, some...)
	}

	return all, nil
}

func (x Conformance) env() []string {
	env := []string{conformance.ReportVariable + "=1"}
	if x.Full {
		env = append(env, "CAPGPU_CONFORMANCE_FULL=1")
	}
	return env
}

func (x Conformance) args(test string) []string {
	pattern := "^" + test + "$"
	if x.Run != "" {
		pattern += "/.*/" + x.Run
	}
	return []string{"-test.v", "-test.timeout=30m", "-test.run=" + pattern}
}

func (x Conformance) mock(ctx context.Context, repo, dir, suite, test string) (string, error) {
	bin := filepath.Join(dir, "bin")
	if _, err := command(ctx, repo, "env", "CGO_ENABLED=0", "go", "build", "-o", bin+"/", "./cmd/device-manager", "./cmd/gpu-mock", "./cmd/gpu-gate"); err != nil {
		return "", err
	}
	if _, err := command(ctx, repo, "env", "CGO_ENABLED=0", "go", "build", "-o", filepath.Join(bin, local.OtherVersion), "-ldflags", "-X main.stateVersion=99", "./cmd/gpu-mock"); err != nil {
		return "", err
	}
	args := append(append(x.env(), "CAPGPU_TEST_PROGRAMS="+bin, suite), x.args(test)...)
	out, err := command(ctx, dir, "env", args...)
	if err != nil && len(resultsIn(err.Error())) > 0 { // some failed: the results say so
		return err.Error(), nil
	}
	return string(out), err
}

func (x Conformance) edu(ctx context.Context, repo, dir, suite string) (string, error) {
	hostile := filepath.Join(dir, "hostile-driver")
	if _, err := command(ctx, repo, "env", "CGO_ENABLED=0", "go", "build", "-o", hostile, "./qemu/guest/hostile-driver"); err != nil {
		return "", err
	}

	var out bytes.Buffer
	logf := x.Logf
	if logf == nil {
		logf = func(string, ...any) {}
	}

	run := GuestRun{
		Program: suite, Args: x.args("TestHardwareEdu"), Env: append(x.env(), "CAPGPU_TEST_PROGRAMS=/bin"),
		Files: map[string]string{"bin/hostile-driver": hostile}, Product: true, Functions: 2, MemoryMiB: 2048,
		Timeout: 30 * time.Minute, Output: &out, Again: out.Reset, Logf: logf, Console: func(line string) { logf("guest: %s", line) },
	}
	_, err := run.Run(ctx)
	if err != nil {
		err = fmt.Errorf("%w; the suite printed:\n%s", err, out.String())
	}

	return out.String(), err
}

// resultsIn reads the results of the suite.
func resultsIn(text string) (all []conformance.Result) {
	for line := range strings.Lines(text) {
		told, ok := strings.CutPrefix(strings.TrimSpace(line), conformance.ReportPrefix)
		var r conformance.Result
		if ok && json.Unmarshal([]byte(told), &r) == nil {
			all = append(all, r)
		}
	}
	return all
}
