package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HardwareFigure is one of what "make bench-hw" measures (docs/bench-hw.md).
type HardwareFigure struct {
	Name   string  `json:"name"`
	What   string  `json:"what"`
	Ratio  float64 `json:"ratio"` // of ours to the peer; of counts: per launch
	Bound  float64 `json:"bound"` // the ratio must not exceed it
	Met    bool    `json:"met"`
	Ours   float64 `json:"oursNs,omitempty"` // medians
	Peer   float64 `json:"peerNs,omitempty"`
	Others string  `json:"others,omitempty"` // for information
}

// hardwareBenchmarks are package manager's, by the names of the figures.
var hardwareBenchmarks = []struct {
	name, benchmark, what string
	bound                 float64
}{
	{"irq", "BenchmarkHardwareInterrupt", "interrupt to Go handler, against an eventfd round trip", 1.5},
	{"map", "BenchmarkHardwareMap", "map and unmap of a pooled 2 MiB buffer, against the two ioctls", 1.2},
	{"ioctls", "BenchmarkHardwareIoctls", "maps and unmaps of the kernel for each launch and copy, in steady state", 0},
}

// maxShown is how many lines of the guest's an error has.
const maxShown = 40

// HardwareFigures are the names of the figures.
func HardwareFigures() (names []string) {
	for _, b := range hardwareBenchmarks {
		names = append(names, b.name)
	}
	return names
}

// BenchHardware measures figures in a guest with an edu function. pairs is how often
// each side has its turn. All that the guest prints goes to output.
func BenchHardware(ctx context.Context, names []string, pairs int, output io.Writer, logf func(string, ...any)) ([]HardwareFigure, error) {
	var benchmarks []string
	for _, b := range hardwareBenchmarks {
		if slices.Contains(names, b.name) {
			benchmarks = append(benchmarks, b.benchmark)
		}
	}

	if len(benchmarks) != len(names) || pairs < 1 {
		return nil, fmt.Errorf("want figures of %v, each once, and at least one pair; got %v and %d", HardwareFigures(), names, pairs)
	}

	repo, err := RepoRoot()
	if err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp("", "bench-hw")
	if err != nil {
		return nil, err
	}

	defer os.RemoveAll(dir)
	var out bytes.Buffer
	run := GuestRun{
		Program: filepath.Join(dir, "bench"),
		Args: []string{"-test.run=^$", "-test.bench=^(" + strings.Join(benchmarks, "|") + ")$",
			fmt.Sprintf("-test.benchtime=%dx", pairs), "-test.timeout=9m"},
		Env:     []string{"CAPGPU_TEST_PROGRAMS=/bin"},
		Product: true, Functions: 1, MemoryMiB: 1024, Timeout: 10 * time.Minute,
		Output: io.MultiWriter(&out, output), Again: out.Reset, Logf: logf,
	}
	if _, err := command(ctx, repo, "env", "CGO_ENABLED=0", "go", "test", "-c", "-ldflags=-s -w", "-o", run.Program, "./manager"); err != nil {
		return nil, err
	}

	status, err := run.Run(ctx)
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d", status)
	}

	if err != nil {
		lines := strings.SplitAfter(out.String(), "\n")
		return nil, fmt.Errorf("the benchmarks in the guest: %w; the last that they printed:\n%s", err, strings.Join(lines[max(len(lines)-maxShown, 0):], ""))
	}

	return hardwareFigures(out.String(), names)
}

// hardwareFigures reads the output of the benchmarks.
func hardwareFigures(text string, names []string) (all []HardwareFigure, err error) {
	for _, b := range hardwareBenchmarks {
		if !slices.Contains(names, b.name) {
			continue
		}
		metrics, order := benchmarkLine(text, b.benchmark)
		ratio, ok := metrics["ratio"]
		if !ok {
			return nil, errors.Join(err, fmt.Errorf("the guest printed no figure of %s", b.benchmark))
		}
		f := HardwareFigure{Name: b.name, What: b.what, Ratio: ratio, Bound: b.bound, Met: ratio <= b.bound,
			Ours: metrics["ours-ns"], Peer: metrics["peer-ns"]}
		var others []string
		for _, unit := range order {
			if !slices.Contains([]string{"ratio", "ours-ns", "peer-ns", "ns/op"}, unit) {
				others = append(others, fmt.Sprintf("%s %v", unit, metrics[unit]))
			}
		}
		f.Others = strings.Join(others, ", ")
		all = append(all, f)
	}

	return all, nil
}

// benchmarkLine finds the line of one benchmark, and the metrics on it with their
// units in order: "BenchmarkX-2  100  12 ns/op  1.5 ratio".
func benchmarkLine(text, benchmark string) (metrics map[string]float64, order []string) {
	metrics = map[string]float64{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 4 || len(words)%2 != 0 || words[0] != benchmark && !strings.HasPrefix(words[0], benchmark+"-") {
			continue
		}
		for i := 2; i < len(words); i += 2 {
			if v, err := strconv.ParseFloat(words[i], 64); err == nil {
				metrics[words[i+1]] = v
				order = append(order, words[i+1])
			}
		}
	}
	return metrics, order
}
