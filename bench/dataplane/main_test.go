package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/bench/dataplane/churn"
	"capgpu/bench/dataplane/figures"
	"capgpu/bench/dataplane/hostile"
	"capgpu/bench/dataplane/neighbour"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
)

// The peers and the workers are this test binary.
func TestMain(m *testing.M) {
	peers.RunIfPeer()
	churn.RunIfWorker()
	neighbour.RunIfNeighbour()
	hostile.RunIfWorker()
	os.Exit(m.Run())
}

// TestFigures runs everything at minimal size, so that it keeps working. The times
// are meaningless here.
func TestFigures(t *testing.T) {
	bin := t.TempDir()
	build, err := exec.Command("../../tools/build.sh", bin, "device-manager", "gpu-mock", "gpu-gate").CombinedOutput()
	require.NoError(t, err, "%s", build)
	t.Run("all", func(t *testing.T) { everyFigure(t, bin) })
	t.Run("one", func(t *testing.T) { oneFigure(t, bin) })
	t.Run("no compiler", func(t *testing.T) { noCompiler(t, bin) })
}

func everyFigure(t *testing.T, bin string) {
	docs := t.TempDir()
	for _, name := range []string{figures.Performance, figures.Reliability} {
		page, err := os.ReadFile(filepath.Join("../../docs", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(docs, name), page, 0o644))
	}

	var out, said bytes.Buffer
	status := runCommand([]string{
		"-bin", bin, "-json", "-docs", docs, "-out", filepath.Join(docs, "deep", "bench.json"),
		"-pairs", "2", "-slice", "1ms", "-seconds", "5", "-sessions", "8", "-settle", "0s", "-idle", "50ms", "-doorbells", "500",
		"-buffers", "300", "-closes", "3", "-ops", "400", "-kills", "2", "-hangs", "4", "-rounds", "100", "-models", "260k", "-submissions", "50000", "-fuzz", "0s", "-seeds", "20",
	}, &out, &said)
	require.Zero(t, status, said.String())
	var r report.Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	seen := map[string]bool{}
	for _, row := range r.Rows {
		seen[row.ID] = true
		if row.Target && row.Must == 0 { // counts are right at any size
			require.False(t, row.Missed, "%+v\n%s", row, said.String())
		}
	}

	require.Len(t, seen, len(figures.All))
	require.Regexp(t, "^device-manager .", r.Machine.Service)
	require.Len(t, r.Curves, 6)
	stored, err := os.ReadFile(filepath.Join(docs, "deep", "bench.json"))
	require.NoError(t, err)
	require.Equal(t, out.String(), string(stored))
	svg, err := os.ReadFile(filepath.Join(docs, "performance.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "raw futex")
	for _, f := range figures.All {
		text, err := os.ReadFile(filepath.Join(docs, f.Page))
		require.NoError(t, err)
		for _, row := range r.Only(f.ID).Rows {
			require.Contains(t, string(text), "| "+row.ID+" | "+row.Metric+" | "+row.Ours+" |")
		}
	}
}

// oneFigure: the ratio is the last number of the last line.
func oneFigure(t *testing.T, bin string) {
	var out, said bytes.Buffer
	require.Zero(t, runCommand([]string{"-bin", bin, "-pairs", "2", "-slice", "1ms", "P2"}, &out, &said), said.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Regexp(t, `^P2 .*: [0-9.]+$`, lines[len(lines)-1])
	require.Contains(t, out.String(), "raw spin round trip beside P2")
}

// noCompiler: without gcc a model is measured alone.
func noCompiler(t *testing.T, bin string) {
	t.Setenv("PATH", t.TempDir())
	var out, said bytes.Buffer
	require.Zero(t, runCommand([]string{"-bin", bin, "-pairs", "2", "-slice", "1ms", "-models", "260k", "P5"}, &out, &said), said.String())
	require.Contains(t, said.String(), "THERE IS NO PEER")
	require.Contains(t, out.String(), "NO PEER: there is no gcc")
}

func TestCommandLine(t *testing.T) {
	var out, said bytes.Buffer
	require.Zero(t, runCommand([]string{"-help"}, &out, &said))
	for _, f := range figures.All {
		require.Contains(t, said.String(), f.ID+" ")
	}
	for _, wrong := range [][]string{{"P99"}, {"-pairs", "0"}, {"-seconds", "0"}, {"-seconds", "60,P3"}, {"-seconds", "60,P99=1"}, {"-seconds", "9999999999999"}, {"-nonsense"}, {"-models", "1t"}, {"-neighbours", "good"}, {"-hangs", "1"}} {
		require.Equal(t, 2, runCommand(wrong, &out, &said), "%v", wrong)
	}
	o, err := parse([]string{"-seconds", "30,P3=3400"}, &said)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{30 * time.Second, 3400 * time.Second}, []time.Duration{o.longest.of("P2"), o.longest.of("P3")})
	said.Reset()
	require.Equal(t, 1, runCommand([]string{"-bin", t.TempDir(), "P2"}, &out, &said))
	require.Contains(t, said.String(), "make build")
}

// TestShortSoak: every kind of process is killed once, and the books agree with the
// kernel.
func TestShortSoak(t *testing.T) {
	bin := t.TempDir()
	build, err := exec.Command("../../tools/build.sh", bin, "device-manager", "gpu-mock", "gpu-gate").CombinedOutput()
	require.NoError(t, err, "%s", build)
	r, err := figures.Soak(t.Context(), figures.SoakOptions{Bin: bin, Seed: 1, Sessions: 16, Buffers: 200, Ops: 30, Rounds: 16, Say: t.Logf})
	require.NoError(t, err)
	require.Zero(t, r.Bytes)
	require.Zero(t, r.Descriptors)
	require.Len(t, r.Kills, 4)
}
