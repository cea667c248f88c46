package manager_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/internal/proctest"
	"capgpu/internal/sandbox"
)

// rare are calls of the tables that the load does not cause, or not every time.
var rare = map[string]string{
	"restart_syscall": "a sleep that a stopped process resumes",
	"clock_gettime":   "hosts without a clock that is read without a call",
	"getrandom":       "kernels without a random generator that is called without a call",
	"prctl":           "mappings that the heap gets later",
	"exit":            "a thread whose goroutine ended locked to it",
	"socketpair":      "restricted sessions",
	"rt_sigaction":    "a crash",
	"madvise":         "memory that is given back",
	"sched_yield":     "contention",
	"tgkill":          "preemption of what runs for long",
	"rt_sigreturn":    "preemption",
	"getpid":          "preemption",
	"timerfd_settime": "a deadline that is near",
	"ppoll":           "a client that does not read its replies",
}

// Under a load each row of the tables is used, and the processes live: the tables hold the
// calls that are made and no others.
func TestTablesAreWhatIsCalled(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("NOT TESTED: strace is not installed")
	}
	dir := shortDir(t)
	traces := filepath.Join(dir, "traces")
	require.NoError(t, os.Mkdir(traces, 0o777))
	for _, d := range []string{dir, traces} {
		require.NoError(t, os.Chmod(d, 0o777))
	}
	for _, name := range []string{"gpu-mock", "gpu-gate"} {
		// The program stays the child; the tracer is its grandchild (-D). It opens its
		// file before the root directory is empty.
		text := fmt.Sprintf("#!/bin/sh\nexec %s -D -f -qq -o '%s/%s.'$(/bin/date +%%s%%N) '%s' \"$@\"\n", strace, traces, name, filepath.Join(dir, name+".real"))
		require.NoError(t, proctest.WriteProgram(filepath.Join(dir, name), []byte(text)))
		data, err := os.ReadFile(program(name))
		require.NoError(t, err)
		require.NoError(t, proctest.WriteProgram(filepath.Join(dir, name+".real"), data))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	load := exec.Command(self, "-test.run", "^(TestEndToEnd|TestFacetsAndQuotas|TestNextState|TestCapnpClientAcrossDrivers|TestEverythingOfferedCanBeRequired)$")
	load.Env = append(os.Environ(), "CAPGPU_TEST_PROGRAMS="+dir)
	out, err := load.CombinedOutput()
	require.NoError(t, err, "%s", out)

	var all []string
	for name, profile := range map[string]*sandbox.Profile{"gpu-mock": sandbox.Driver, "gpu-gate": sandbox.Gate} {
		called := callsAfterEnter(t, filepath.Join(traces, name+".*"))
		t.Logf("%s: %d of %d: %v", name, len(called), profile.Calls(), called)
		for _, c := range called {
			require.Contains(t, profile.Names(), c)
		}
		all = append(all, called...)
	}
	for _, row := range append(sandbox.Driver.Names(), sandbox.Gate.Names()...) {
		if !slices.Contains(all, row) && rare[row] == "" {
			t.Errorf("nothing calls %s: is it needed?", row)
		}
	}
}

var traced = regexp.MustCompile(`^(\d+) +(?:<\.\.\. )?([a-z0-9_]+)[( ]`)

// callsAfterEnter reads traces: the calls that were made under the filter.
func callsAfterEnter(t *testing.T, pattern string) (called []string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files, "%s", pattern)
	for _, file := range files {
		f, err := os.Open(file)
		require.NoError(t, err)
		defer f.Close()
		entered := false
		for lines := bufio.NewScanner(f); lines.Scan(); {
			m := traced.FindStringSubmatch(lines.Text())
			if m == nil {
				continue
			}
			if strings.HasPrefix(m[2], "syscall_") { // strace has no name for it
				t.Log(file, lines.Text())
				if strings.HasPrefix(m[2], "syscall_0xffffffff") {
					continue // no call has a negative number: strace took an end, -EAGAIN, for a beginning
				}
			}
			switch {
			case m[2] == "seccomp":
				entered = entered || strings.Contains(lines.Text(), "= 0")
			case entered && !slices.Contains(called, m[2]):
				called = append(called, m[2])
			}
		}
	}
	slices.Sort(called)
	return called
}
