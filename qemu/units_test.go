package qemu

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unitName matches the declaration of a test that is for a guest: Hardware ones need
// the functions that CAPGPU_HW names, Guest and Huge ones only root and the guest's
// kernel.
var unitName = regexp.MustCompile(`(?m)^func (Test\w*(?:Hardware|Guest)\w*|TestHuge\w*|TestUnplugged)\(t \*testing\.T\)`)

// lastUnit costs a function.
const lastUnit = "ddf/vfio"

// unit is a package with such tests.
type unit struct {
	pkg   string // relative to the repository's root
	tests []string
}

// units finds them.
func units(t *testing.T, repo string) []unit {
	t.Helper()
	found := map[string][]string{}
	require.NoError(t, filepath.WalkDir(repo, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(repo, path)
		if err != nil {
			return err
		}
		if d.IsDir() && (rel == "qemu" || rel == "bench" || rel == "tools" || strings.HasPrefix(d.Name(), ".") && rel != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range unitName.FindAllSubmatch(text, -1) {
			found[filepath.Dir(rel)] = append(found[filepath.Dir(rel)], string(m[1]))
		}
		return nil
	}))
	var all []unit
	for pkg, tests := range found {
		all = append(all, unit{pkg, tests})
	}
	slices.SortFunc(all, func(a, b unit) int {
		if last := a.pkg == lastUnit; last != (b.pkg == lastUnit) {
			return map[bool]int{true: 1, false: -1}[last]
		}
		return strings.Compare(a.pkg, b.pkg)
	})
	return all
}

// TestHardwareUnits runs the tests of other packages that need real vfio, an IOMMU and
// functions behind it: all in one guest, and none may be skipped there.
func TestHardwareUnits(t *testing.T) {
	needVM(t)
	repo, err := RepoRoot()
	require.NoError(t, err)
	dir := t.TempDir()
	run := GuestRun{
		// Programs that a test starts are the guest's own: there is no compiler.
		Env:   []string{"CAPGPU_HW_UNPLUG=1", "CAPGPU_TEST_PROGRAMS=/bin"},
		Files: map[string]string{}, Product: true, Functions: 2, MemoryMiB: 2048, Timeout: 12 * time.Minute, Logf: t.Logf,
		// Each unit's own limit is 300 s: who hangs and can tell it does that first.
		Silence: 330 * time.Second,
	}
	run.Program = filepath.Join(dir, "units")
	_, err = command(t.Context(), repo, "env", "CGO_ENABLED=0", "go", "build", "-o", run.Program, "./qemu/guest/units")
	require.NoError(t, err)
	// The driver of the second function, for the suite of behaviours.
	hostile := filepath.Join(dir, "hostile-driver")
	_, err = command(t.Context(), repo, "env", "CGO_ENABLED=0", "go", "build", "-o", hostile, "./qemu/guest/hostile-driver")
	require.NoError(t, err)
	run.Files["bin/hostile-driver"] = hostile
	var want []string
	for i, u := range units(t, repo) {
		name := fmt.Sprintf("%02d-%s", i, strings.ReplaceAll(u.pkg, "/", "-"))
		binary, args := filepath.Join(dir, name), filepath.Join(dir, name+".args")
		_, err := command(t.Context(), repo, "env", "CGO_ENABLED=0", "go", "test", "-c", "-ldflags=-s -w", "-o", binary, "./"+u.pkg)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(args, []byte("-test.v -test.short -test.timeout=300s -test.run ^("+strings.Join(u.tests, "|")+")$"), 0o644))
		run.Files["units/"+name+"/test"], run.Files["units/"+name+"/args"] = binary, args
		for _, test := range u.tests {
			want = append(want, name+" "+test)
		}
	}
	require.NotEmpty(t, want)

	var out bytes.Buffer
	run.Output = &out
	start := time.Now()
	status, err := run.Run(t.Context())
	passed, others := results(out.String())
	if err != nil || status != 0 || len(others) > 0 {
		t.Logf("what the guest printed:\n%s", out.String())
	}
	require.NoError(t, err)
	require.Empty(t, others, "tests that failed, or were skipped where nothing may be")
	require.ElementsMatch(t, want, passed)
	require.Zero(t, status)
	t.Logf("%d tests of %d packages in %v", len(passed), len(units(t, repo)), time.Since(start).Round(time.Second))
}

// results reads what go test -v printed for several units.
func results(text string) (passed, others []string) {
	unit := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "=== UNIT "); ok {
			unit = name
		}
		if m := ending.FindStringSubmatch(line); m != nil {
			switch {
			case m[1] == "PASS" && !strings.Contains(m[2], "/"):
				passed = append(passed, unit+" "+m[2])
			case m[1] == "FAIL", m[1] == "SKIP" && !strings.Contains(m[2], "/"): // a suite may have parts that do not apply
				others = append(others, unit+" "+m[2]+" "+m[1])
			}
		}
	}
	return passed, others
}

var ending = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+)`)

func TestResults(t *testing.T) {
	passed, others := results("=== UNIT 00-iommu\n=== RUN TestA\n--- PASS: TestA (0.1s)\n    --- PASS: TestA/x (0s)\n=== UNIT 01-ddf\n--- FAIL: TestB (0s)\n    --- SKIP: TestA/y (0s)\n--- SKIP: TestC (0s)\n")
	require.Equal(t, []string{"00-iommu TestA"}, passed)
	require.Equal(t, []string{"01-ddf TestB FAIL", "01-ddf TestC SKIP"}, others)
}
