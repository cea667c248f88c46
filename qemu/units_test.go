package qemu

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
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
		Files: map[string]string{}, Product: true, Functions: 2, MemoryMiB: 2048, Timeout: 25 * time.Minute, Logf: t.Logf,
		// Each unit's own limit is 600 s: a test that hangs and can report it does that
		// first.
		Silence: 630 * time.Second,
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
	all := units(t, repo)
	for i, u := range all {
		name := fmt.Sprintf("%02d-%s", i, strings.ReplaceAll(u.pkg, "/", "-"))
		binary, args := filepath.Join(dir, name), filepath.Join(dir, name+".args")
		_, err := command(t.Context(), repo, "env", "CGO_ENABLED=0", "go", "test", "-c", "-ldflags=-s -w", "-o", binary, "./"+u.pkg)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(args, []byte("-test.v=test2json -test.short -test.timeout=600s -test.run ^("+strings.Join(u.tests, "|")+")$"), 0o644))
		run.Files["units/"+name+"/test"], run.Files["units/"+name+"/args"] = binary, args
		for _, test := range u.tests {
			want = append(want, name+" "+test)
		}
	}
	require.NotEmpty(t, want)

	guestRuns(t, func() error { return runUnits(t, run, want, len(all)) })
}

// runUnits runs the guest of so many units once, and wants all these tests to have passed.
func runUnits(t *testing.T, run GuestRun, want []string, units int) error {
	var out bytes.Buffer
	run.Output, run.Again = &out, out.Reset
	start := time.Now()
	status, err := run.Run(t.Context())
	ended := results(out.String())
	wrong := ended.wrong(want)
	if err == nil && status == 0 && len(wrong) == 0 {
		if len(ended.took) != units {
			// Every test has passed; where the words went is of interest all the same.
			t.Logf("%d of %d units have told how long they took; the output ends with %q", len(ended.took), units, out.String()[max(out.Len()-400, 0):])
		}
		t.Logf("%d tests in %v: %s", len(want), time.Since(start).Round(time.Second), strings.Join(ended.took, ", "))
		return nil
	}

	t.Logf("what the guest printed:\n%s", out.String())
	if err != nil {
		return err
	}
	if len(wrong) > 0 { // last and short, because it is read first
		return fmt.Errorf("in the guest, of %d tests:\n%s", len(want), strings.Join(wrong, "\n"))
	}
	return fmt.Errorf("the guest's program ended with status %d", status)
}

// unitResults are how the tests of several units ended: "unit test", each.
type unitResults struct {
	passed, failed, skipped []string
	ends                    []string // of failed units: their status, and their panic
	took                    []string // each unit
}

// marker precedes each line that is go test's own, with -test.v=test2json, after any output
// of the test on the same line (testing.chatty, Go 1.20 and later).
const marker = "\x16"

var (
	ending  = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+)`)
	failing = regexp.MustCompile(`^=== UNIT \S+ FAILED: (.*)`)
	dying   = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z]+): `) // or a process that a test started
)

// results reads what go test -v=test2json printed for several units.
func results(text string) (r unitResults) {
	unit, died := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := failing.FindStringSubmatch(line); m != nil {
			r.ends = append(r.ends, unit+" "+m[1]+died)
		} else if name, ok := strings.CutPrefix(line, "=== UNIT "); ok {
			unit, died = name, ""
		} else if took, ok := strings.CutPrefix(line, "=== TOOK "); ok {
			r.took = append(r.took, unit+" "+took)
		} else if dying.MatchString(line) {
			died = "; " + line
		}
		_, line, _ = strings.Cut(line, marker)
		m := ending.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		part := strings.Contains(m[2], "/")
		switch name := unit + " " + m[2]; {
		case m[1] == "FAIL":
			r.failed = append(r.failed, name)
		case part: // a suite may have parts that do not apply
		case m[1] == "SKIP":
			r.skipped = append(r.skipped, name)
		default:
			r.passed = append(r.passed, name)
		}
	}
	return r
}

// wrong returns a line for each deviation: all those tests passed, once each, and no others.
func (r unitResults) wrong(want []string) (lines []string) {
	for _, end := range r.ends {
		lines = append(lines, "a unit failed: "+end)
	}
	for _, name := range r.failed {
		lines = append(lines, "failed: "+name)
	}
	for _, name := range r.skipped {
		lines = append(lines, "skipped, where nothing may be: "+name)
	}
	times := map[string]int{}
	for _, name := range r.passed {
		times[name]++
	}
	told := slices.Concat(r.failed, r.skipped)
	for _, name := range want {
		if times[name] == 0 && !slices.Contains(told, name) {
			lines = append(lines, "did not end: "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		if times[name] > 1 {
			lines = append(lines, fmt.Sprintf("passed %d times: %s", times[name], name))
		}
		if !slices.Contains(want, name) {
			lines = append(lines, "is not one that was asked for: "+name)
		}
	}
	return lines
}

func TestResults(t *testing.T) {
	const said = "=== UNIT 00-iommu\npanic: of a child\n\x16=== RUN   TestA\n    \x16--- PASS: TestA/x (0s)\nno end of line\x16--- PASS: TestA (0.1s)\n" +
		"--- PASS: TestForged (0s)\n=== UNIT 01-ddf\n\x16--- FAIL: TestB (0s)\n\x16    --- SKIP: TestA/y (0s)\n\x16--- SKIP: TestC (0s)\n" +
		"\x16=== RUN   TestD\npanic: test timed out after 5m0s\n=== TOOK 5m0s\n=== UNIT 01-ddf FAILED: exit status 2\n"
	got := results(said)
	require.Equal(t, unitResults{
		passed: []string{"00-iommu TestA"}, failed: []string{"01-ddf TestB"}, skipped: []string{"01-ddf TestC"},
		ends: []string{"01-ddf exit status 2; panic: test timed out after 5m0s"},
		took: []string{"01-ddf 5m0s"},
	}, got)
	require.Equal(t, []string{
		"a unit failed: 01-ddf exit status 2; panic: test timed out after 5m0s",
		"failed: 01-ddf TestB",
		"skipped, where nothing may be: 01-ddf TestC",
		"did not end: 01-ddf TestD",
	}, got.wrong([]string{"00-iommu TestA", "01-ddf TestB", "01-ddf TestC", "01-ddf TestD"}))
	require.Empty(t, results("=== UNIT 00\n\x16--- PASS: TestA (0s)\n").wrong([]string{"00 TestA"}))
	require.Equal(t, []string{"passed 2 times: 00 TestA", "is not one that was asked for: 00 TestA"},
		results("=== UNIT 00\n\x16--- PASS: TestA (0s)\n=== UNIT 00\n\x16--- PASS: TestA (0s)\n").wrong(nil))
}
