// Package hostile counts the hostile inputs that this machine tries in a minute:
// random submissions compared with a model (capgpu/gpu/gputest/difftest), and
// executions of fuzz targets.
//
// Both run in processes of their own, which have all CPUs; the first of them is this
// same program with a hidden first argument (RunIfWorker).
package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"capgpu/bench/dataplane/service"
	"capgpu/gpu/gputest/difftest"
)

const hidden = "dataplane-hostile"

// RunIfWorker makes this process the one that compares, if it was started as that,
// and then never returns.
func RunIfWorker() {
	if len(os.Args) != 4 || os.Args[1] != hidden {
		return
	}
	n, _ := strconv.ParseUint(os.Args[2], 10, 64)
	seed, _ := strconv.ParseUint(os.Args[3], 10, 64)
	r, err := difftest.Run(context.Background(), difftest.Options{Submissions: n, Seed: seed})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if json.NewEncoder(os.Stdout).Encode(r) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Compare submits this many, and returns what was compared. An error is a
// divergence.
func Compare(ctx context.Context, submissions uint64) (r difftest.Result, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	seed := uint64(time.Now().Unix()) // different in each run; a divergence reports it
	out, err := Output(exec.CommandContext(ctx, self, hidden, strconv.FormatUint(submissions, 10), strconv.FormatUint(seed, 10)))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(out, &r)
}

var summary = regexp.MustCompile(`(?m)^(\d+) targets, (\d+) executions, (\d+) new inputs, (\d+) crashes$`)

// Fuzzed is the result of a run of tools/fuzz.sh.
type Fuzzed struct{ Targets, Executions, Crashes uint64 }

// Fuzz runs the targets of tools/fuzz-fast.txt for this long in all. root is the
// repository.
func Fuzz(ctx context.Context, root string, d time.Duration) (f Fuzzed, err error) {
	names, err := os.ReadFile(filepath.Join(root, "tools", "fuzz-fast.txt"))
	if err != nil {
		return f, err
	}

	cmd := exec.CommandContext(ctx, filepath.Join("tools", "fuzz.sh"), append([]string{strconv.Itoa(int(d.Seconds()))}, strings.Fields(string(names))...)...)
	cmd.Dir = root
	out, err := Output(cmd)
	m := summary.FindSubmatch(out)
	if err != nil || m == nil {
		return f, errors.Join(err, fmt.Errorf("tools/fuzz.sh says %.300q", out))
	}

	for i, to := range []*uint64{&f.Targets, &f.Executions, nil, &f.Crashes} {
		if to != nil {
			*to, _ = strconv.ParseUint(string(m[i+1]), 10, 64) // digits
		}
	}

	return f, nil
}

// Output is the output of a command with all CPUs, whatever those of this process
// are.
func Output(cmd *exec.Cmd) (out []byte, err error) {
	cmd.Stderr = os.Stderr
	err = service.OnAllCPUs(func() (err error) {
		out, err = cmd.Output()
		return err
	})
	return out, err
}
