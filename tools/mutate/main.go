// Command mutate measures how many mistakes the tests of a package notice. It changes one
// place of the package's code at a time, as a mistake would (operators.go), and runs the
// package's own tests. A change that they fail on is killed; one that they pass survives and
// is printed: either a test is missing, or the change makes no difference (equivalent.txt
// names those, each with the reason).
//
// The working tree is not touched: the changed file is laid over it (go build -overlay). A
// change that does not compile is no mutant and does not count.
//
//	mutate [-seed N] [-limit N] [-for 30m] [-timeout 20s] [-skip TESTS] [-dir ..] PACKAGE...
//
// When it is interrupted, or its time is up, it prints the score so far. Its exit status is 0
// even if mutants survive, and 1 when tests fail without a change.
package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed equivalent.txt
var equivalentText string

type options struct {
	seed    uint64
	limit   int
	timeout time.Duration
	total   time.Duration
	dir     string
	skip    string
	verbose bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "which mutants are taken, and in which order")
	flag.IntVar(&o.limit, "limit", 150, "how many mutants of each package; 0: all")
	flag.DurationVar(&o.total, "for", 0, "longest time for all packages; 0: as long as it takes")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Second, "longest run of the tests of one mutant, or four times theirs without one; beyond it is killed")
	flag.StringVar(&o.dir, "dir", "..", "folder of the module")
	flag.StringVar(&o.skip, "skip", "", "tests that are left out, as go test -skip: what survives then is to be tried again with them")
	flag.BoolVar(&o.verbose, "v", false, "print those that were killed, too")
	flag.Parse()
	failed := false
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.total > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.total)
		defer cancel()
	}

	for _, pattern := range flag.Args() {
		if err := measure(ctx, &o, pattern); err != nil {
			fmt.Fprintf(os.Stderr, "mutate: %s: %v\n", pattern, err)
			failed = true
		}
	}

	if failed || flag.NArg() == 0 {
		os.Exit(1)
	}
}

// pkg is a package as go list describes it.
type pkg struct {
	Dir, ImportPath string
	GoFiles         []string
}

func list(o *options, pattern string) (p pkg, err error) {
	cmd := exec.Command("go", "list", "-json=Dir,ImportPath,GoFiles", pattern)
	cmd.Dir = o.dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(out, &p)
}

// verdict is the fate of a mutant.
type verdict int

const (
	stillborn verdict = iota // it does not compile
	killed
	late // killed, by the clock
	survived
)

// measure tries the mutants of one package and prints the score, also when it is
// interrupted.
func measure(ctx context.Context, o *options, pattern string) error {
	p, err := list(o, pattern)
	if err != nil {
		return err
	}

	var all []mutant
	for _, name := range p.GoFiles {
		if strings.HasPrefix(name, "zx") {
			continue // generated
		}
		found, err := mutants(filepath.Join(p.Dir, name))
		if err != nil {
			return err
		}
		all = append(all, found...)
	}

	rand.New(rand.NewPCG(o.seed, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}

	defer os.RemoveAll(work)
	unchanged := *o
	unchanged.timeout = slowest
	v, out, took := try(&unchanged, p, work, nil)
	if v != survived {
		return fmt.Errorf("its tests fail without any change:\n%s", out)
	}

	patient := *o // a machine that is slow, or has other work, kills no mutant
	patient.timeout = max(o.timeout, patience*took)
	o = &patient
	known := equivalents(equivalentText)
	count := map[verdict]int{}
	same, tried := 0, 0
	began := time.Now()
	for i := range all {
		m := &all[i]
		if o.limit > 0 && tried >= o.limit || ctx.Err() != nil {
			break
		}
		if known[m.key(p.Dir)] {
			same++
			continue
		}
		v, _, _ := try(o, p, work, m)
		if ctx.Err() != nil {
			break // the runs under way may have been interrupted, too
		}
		count[v]++
		if v == stillborn {
			continue
		}
		tried++
		switch {
		case v == survived:
			fmt.Printf("SURVIVED %s\n", m)
		case o.verbose:
			fmt.Printf("killed   %s\n", m)
		}
	}

	dead := count[killed] + count[late]
	fmt.Printf("%s: %d of %d mutants killed (%d by the clock), %.1f %%; %d survived; %d are known to be equivalent, %d did not compile; of %d places; seed %d, at most %v each, %v\n",
		p.ImportPath, dead, tried, count[late], 100*float64(dead)/float64(max(tried, 1)), count[survived], same, count[stillborn], len(all), o.seed, o.timeout.Round(time.Second), time.Since(began).Round(time.Second))
	return nil
}

// Bounds of the tests' time: without a change, and how many times that a mutant may take.
const (
	slowest  = 5 * time.Minute
	patience = 4
)

// try builds and runs the tests with a mutant; nil: without. took is how long they ran.
func try(o *options, p pkg, work string, m *mutant) (_ verdict, said string, took time.Duration) {
	binary := filepath.Join(work, "tests")
	args := []string{"test", "-c", "-vet=off", "-o", binary}
	if m != nil {
		changed := filepath.Join(work, "changed.go")
		overlay := filepath.Join(work, "overlay.json")
		text, _ := json.Marshal(map[string]any{"Replace": map[string]string{m.file: changed}}) // of strings: cannot fail
		if errors.Join(os.WriteFile(changed, m.source(), 0o600), os.WriteFile(overlay, text, 0o600)) != nil {
			return stillborn, "", 0
		}
		args = append(args, "-overlay", overlay)
	}

	build := exec.Command("go", append(args, p.ImportPath)...)
	build.Dir = o.dir
	if out, err := build.CombinedOutput(); err != nil {
		return stillborn, string(out), 0
	}

	ctx, stop := context.WithTimeout(context.Background(), o.timeout)
	defer stop()
	run := exec.CommandContext(ctx, binary, "-test.short", "-test.failfast", "-test.skip="+o.skip, "-test.timeout="+o.timeout.String())
	run.Dir = p.Dir
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the processes that the tests start
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	run.WaitDelay = time.Second
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	began := time.Now()
	err := run.Run()
	took = time.Since(began)
	switch {
	case err == nil:
		return survived, "", took
	case ctx.Err() != nil || bytes.Contains(out.Bytes(), []byte("panic: test timed out")):
		return late, out.String(), took
	}

	return killed, out.String(), took
}

// equivalents reads lines "file: old ⇒ new # reason".
func equivalents(text string) map[string]bool {
	known := map[string]bool{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line, _, hasReason := strings.Cut(lines.Text(), " # ")
		if hasReason && !strings.HasPrefix(line, "#") {
			known[strings.TrimSpace(line)] = true
		}
	}
	return known
}
