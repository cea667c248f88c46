package figures

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"capgpu/bench/dataplane/hostile"
	"capgpu/bench/dataplane/report"
)

// simulated is P11. The simulation and the models of the ring are tests, because
// virtual time is a test's; they run as tests, and their output is read.
func simulated(ctx context.Context, e *Env) ([]report.Row, error) {
	text, err := test(ctx, "./sim", "^TestSweep$", "CAPGPU_SIM_SEEDS="+strconv.Itoa(e.Seeds))
	if err != nil {
		return nil, err
	}

	var s [4]float64
	for i, re := range []*regexp.Regexp{simSeeds, simSpeed, simClasses, simVirtual} {
		if s[i], err = one(re, text); err != nil {
			return nil, fmt.Errorf("the simulation: %w", err)
		}
	}

	e.Say("P11: %.0f seeds, none failed; now the models of the ring", s[0])
	if text, err = test(ctx, "./ring/model", "^(TestProtocol|TestReactor)$"); err != nil {
		return nil, err
	}

	states, ways, models := 0.0, 0.0, 0
	for _, m := range modelLine.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return nil, err
		}
		states += n
		models++
		if w, err := strconv.ParseFloat(m[2], 64); err == nil && w == w && w < 1e300 { // else they go in circles
			ways += w
		}
	}

	if models == 0 {
		return nil, fmt.Errorf("the models of the ring say nothing:\n%s", text)
	}

	return []report.Row{
		report.Value("P11", "virtual seconds a second", report.Number(s[3]), "", s[3], "×", report.Target{}),
		report.Value("P11", fmt.Sprintf("states of %d models of the ring, all explored (%.2g interleavings): violations", models, ways), report.Number(states)+" states", "", 0, "", report.AtMost(0, 0)),
		report.Value("P11", fmt.Sprintf("fault classes hit, of 24, in %.0f seeds without a failure", s[0]), report.Number(s[2]), "", s[2], "", report.AtLeast(24, 24)),
		report.Value("P11", "seeds a minute", report.Number(s[1]), "", s[1], "", report.AtLeast(1000, 1000)),
	}, nil
}

var (
	simSeeds   = regexp.MustCompile(`(?m)^seeds +(\d+) .* 0 failed$`)
	simSpeed   = regexp.MustCompile(`(?m)^seeds/minute +(\d+)$`)
	simClasses = regexp.MustCompile(`(?m)^classes +(\d+) of 24$`)
	simVirtual = regexp.MustCompile(`(?m)^virtual .*: (\d+) virtual seconds a second$`)
	modelLine  = regexp.MustCompile(`(\d+) states, \d+ moves, \d+ ends, \d+ moves deep, (\S+) interleavings`)
)

func one(re *regexp.Regexp, text string) (float64, error) {
	m := re.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("nothing matches %q in:\n%s", re, text)
	}
	return strconv.ParseFloat(m[1], 64)
}

// test builds the tests of a package of the main module, runs those that match, and
// returns their output. Building is not measured.
func test(ctx context.Context, pkg, match string, env ...string) (string, error) {
	dir, err := os.MkdirTemp("", "capgpu-test-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)

	root, err := repository(ctx)
	if err != nil {
		return "", err
	}

	bin := filepath.Join(dir, "test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", bin, pkg)
	build.Dir = root
	if out, err := hostile.Output(build); err != nil {
		return "", fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}

	run := exec.CommandContext(ctx, bin, "-test.v", "-test.run", match)
	run.Dir = filepath.Join(root, pkg)
	run.Env = append(os.Environ(), env...)
	out, err := hostile.Output(run)
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w\n%s", match, pkg, err, out)
	}

	return string(out), nil
}

// repository is the folder of the main module.
func repository(ctx context.Context) (string, error) {
	out, err := hostile.Output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "capgpu"))
	if err != nil {
		return "", fmt.Errorf("look for the main module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
