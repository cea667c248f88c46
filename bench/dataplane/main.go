// Command dataplane measures the data plane of the running service beside its peers. See
// -help and docs/performance-method.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/churn"
	"capgpu/bench/dataplane/figures"
	"capgpu/bench/dataplane/hostile"
	"capgpu/bench/dataplane/neighbour"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
	"capgpu/internal/benchtest"
)

func main() {
	peers.RunIfPeer()
	churn.RunIfWorker()
	hostile.RunIfWorker()
	neighbour.RunIfNeighbour()
	os.Exit(runCommand(os.Args[1:], os.Stdout, os.Stderr))
}

const usage = `dataplane - measures the data plane of the running service beside its peers

usage: dataplane [flags] [FIGURE...]

make bench runs all figures and prints one table; make bench-P1 runs one, and its last
line ends in the ratio. Exit status 0 also when a figure is not what it must be (the
table says MISSED); 1 when one could not be measured, 2 for a wrong command line.

figures:
`

type options struct {
	figures.Options
	longest limits
	json    bool
	curves  bool
	out     string
	docs    string
	which   []figures.Figure
}

// limits are the figures' time limits, from -seconds.
type limits struct {
	all time.Duration
	own map[string]time.Duration // by the figure's ID
}

func (l *limits) of(id string) time.Duration {
	if own, has := l.own[id]; has {
		return own
	}
	return l.all
}

func (l *limits) String() string { return strconv.Itoa(int(l.all / time.Second)) }

func (l *limits) Set(text string) error {
	l.own = map[string]time.Duration{}
	for part := range strings.SplitSeq(text, ",") {
		id, number, one := strings.Cut(part, "=")
		if !one {
			number = part
		} else if _, err := figures.Lookup(id); err != nil {
			return err
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > int(math.MaxInt64/time.Second) {
			return fmt.Errorf("%q is no number of seconds", number)
		}
		if limit := time.Duration(n) * time.Second; one {
			l.own[id] = limit
		} else {
			l.all = limit
		}
	}

	return nil
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{Options: figures.Defaults()}
	o.longest = limits{all: o.Longest}
	f := flag.NewFlagSet("dataplane", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		for _, fig := range figures.All {
			fmt.Fprintf(stderr, "  %-4s %s\n", fig.ID, fig.What)
		}
		fmt.Fprint(stderr, "\nflags:\n")
		f.PrintDefaults()
	}

	f.Var(&o.longest, "seconds", "longest `time` of one figure, about; 60,P3=3400 is another one for P3")
	f.BoolVar(&o.json, "json", false, "print one JSON object instead of the table")
	f.StringVar(&o.out, "out", "", "write the JSON to this file as well")
	f.StringVar(&o.docs, "docs", "", "put the tables into performance.md and reliability.md of this folder, and draw performance.svg there")
	f.BoolVar(&o.curves, "curves", false, "measure the distributions of single round trips, too (all figures: always)")
	f.StringVar(&o.Bin, "bin", "../bin", "folder of the built commands")
	f.IntVar(&o.Pairs, "pairs", o.Pairs, "pairs of slices of each comparison")
	f.DurationVar(&o.Slice, "slice", o.Slice, "length of a slice")
	f.IntVar(&o.Sessions, "sessions", o.Sessions, "sessions of the idle driver (P3) and of the crowd (P12)")
	f.DurationVar(&o.Settle, "settle", o.Settle, "after which the driver is called idle (P3): the time limits of what was asked last are 5s")
	f.DurationVar(&o.Idle, "idle", o.Idle, "how long the idle driver is watched (P3)")
	f.IntVar(&o.Doorbells, "doorbells", o.Doorbells, "doorbells of random phase (P3), as far as -seconds allows")
	f.IntVar(&o.Buffers, "buffers", o.Buffers, "buffers of the session that is closed (P7)")
	f.IntVar(&o.Closes, "closes", o.Closes, "sessions closed while they are used (P7)")
	f.IntVar(&o.Ops, "ops", o.Ops, "random operations (P12), as far as -seconds allows; 0: only the crowd")
	f.IntVar(&o.Kills, "kills", o.Kills, "drivers killed (P8), processes killed meanwhile (P12); negative: 200 and 20")
	f.IntVar(&o.Hangs, "hangs", o.Hangs, "hangs injected (P9), as far as -seconds allows; 0: none")
	f.Uint64Var(&o.Submissions, "submissions", o.Submissions, "random submissions that are held against the model (P10)")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "seeds of the simulation (P11)")
	f.DurationVar(&o.Fuzz, "fuzz", o.Fuzz, "how long the fast fuzz targets run in all (P10); 0: not")
	neighbours := f.String("neighbours", strings.Join(o.Hostile, ","), "hostile neighbours of P9")
	models := f.String("models", strings.Join(o.Models, ","), "language models of P4 and P5")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "round trips of each distribution")
	if err := f.Parse(args); err != nil {
		return nil, err
	}

	o.Hostile = strings.Split(*neighbours, ",")
	for _, name := range o.Hostile {
		if !slices.Contains(neighbour.Names(), name) {
			return nil, fmt.Errorf("there is no hostile neighbour %q; there are %s", name, strings.Join(neighbour.Names(), ", "))
		}
	}

	o.Models = strings.Split(*models, ",")
	for _, name := range o.Models {
		if !slices.Contains(figures.ModelNames, name) {
			return nil, fmt.Errorf("there is no model %q; there are %s", name, strings.Join(figures.ModelNames, ", "))
		}
	}

	if o.Pairs < 1 || o.Slice <= 0 || o.Sessions < 1 || o.Doorbells < 0 || o.Buffers < 1 || o.Closes < 0 || o.Ops < 0 || o.Hangs < 0 || o.Hangs == 1 || o.Rounds < 1 || o.Idle <= 0 || o.Settle < 0 {
		return nil, errors.New("a count must not be negative, and most must not be 0")
	}

	for _, id := range f.Args() {
		fig, err := figures.Lookup(id)
		if err != nil {
			return nil, err
		}
		o.which = append(o.which, fig)
	}

	if len(o.which) == 0 {
		o.which, o.curves = figures.All, true
	}

	return o, nil
}

func runCommand(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "dataplane: %v; see -help\n", err)
		return 2
	}
	o.Say = func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	if err := run(o, stdout); err != nil {
		fmt.Fprintln(stderr, "dataplane:", err)
		return 1
	}
	return 0
}

func run(o *options, stdout io.Writer) (err error) {
	r := &report.Report{When: time.Now(), Machine: machine(o.Bin), Spins: map[string]float64{}}
	e, err := figures.Open(o.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()

	// The service is started before, and has the other CPU.
	unpin, err := benchtest.Pin(peers.ClientCPU)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unpin()) }()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	curves, err := measure(o, e, r)
	if err != nil {
		return err
	}

	return show(o, r, curves, stdout)
}

// measure runs the requested figures.
func measure(o *options, e *figures.Env, r *report.Report) (curves []report.Curve, err error) {
	ctx := context.Background()
	for _, f := range o.which {
		e.Longest = o.longest.of(f.ID)
		if r.Spins[f.ID], err = figures.Spin(e); err != nil {
			return nil, err
		}
		o.Say("%s: %s (raw spin round trip: %s)", f.ID, f.What, report.Nanos(r.Spins[f.ID]))
		rows, err := f.Measure(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.ID, err)
		}
		r.Rows = append(r.Rows, rows...)
		runtime.GC()
	}

	if !o.curves {
		return nil, nil
	}
	if curves, err = figures.Curves(ctx, e); err != nil {
		return nil, err
	}

	for _, c := range curves {
		r.Curves = append(r.Curves, report.Summarize(c))
	}

	return curves, nil
}

// show prints and stores the results.
func show(o *options, r *report.Report, curves []report.Curve, stdout io.Writer) error {
	var asJSON bytes.Buffer
	if err := r.WriteJSON(&asJSON); err != nil {
		return err
	}

	if o.out != "" {
		if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(o.out, asJSON.Bytes(), 0o644); err != nil {
			return err
		}
	}

	if o.docs != "" {
		if err := document(o.docs, r, curves); err != nil {
			return err
		}
	}

	if o.json {
		_, err := stdout.Write(asJSON.Bytes())
		return err
	}

	fmt.Fprintf(stdout, "%s\n", r.Machine)
	for _, c := range r.Curves {
		fmt.Fprintf(stdout, "%-26s median %-8s 99 %% %-8s 99.9 %% %s\n", c.Name, report.Nanos(c.Median), report.Nanos(c.P99), report.Nanos(c.P999))
	}

	for _, f := range o.which {
		fmt.Fprintf(stdout, "raw spin round trip beside %s: %s\n", f.ID, report.Nanos(r.Spins[f.ID]))
	}

	fmt.Fprintln(stdout)
	if err := r.WriteTable(stdout); err != nil {
		return err
	}
	if len(o.which) == 1 {
		fmt.Fprintln(stdout, "\n"+r.LastLine())
	}

	return nil
}

// document renews the pages of docs/ that show figures, and the picture. A page
// without a measured figure stays as it is.
func document(dir string, r *report.Report, curves []report.Curve) error {
	for _, page := range []string{figures.Performance, figures.Reliability} {
		shown := r.Only(figures.OnPage(page)...)
		if len(shown.Rows) == 0 {
			continue
		}
		if page == figures.Performance {
			shown.Curves = r.Curves
		}
		if err := documentPage(filepath.Join(dir, page), shown); err != nil {
			return err
		}
	}

	if len(curves) == 0 {
		return nil
	}

	var svg bytes.Buffer
	if err := report.WritePicture(&svg, "One launch, there and back, beside its peers", curves); err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, "performance.svg"), svg.Bytes(), 0o644)
}

func documentPage(path string, r *report.Report) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	renewed, err := r.InDocument(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(renewed), 0o644)
}

// machine describes the machine, and the service.
func machine(bin string) report.Machine {
	m := report.Machine{CPU: "an unknown kind", CPUs: runtime.NumCPU(), Go: runtime.Version(), Service: "an unknown service"}
	if text, err := exec.Command(filepath.Join(bin, "device-manager"), "--version").Output(); err == nil {
		m.Service, _, _ = strings.Cut(strings.TrimSpace(string(text)), " (")
	}

	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}

	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &m.Load) // without it, 0
	}

	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}

	return m
}
