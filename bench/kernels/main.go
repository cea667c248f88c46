// Command kernels measures the speed of kernels: the native bodies against the same
// loops in C, and the lane engine by itself.
//
//	make bench-kernels                 # or, in bench/: go run ./kernels
//	go run ./kernels -json             # the same as one JSON object
//	go run ./kernels -check            # exit status 1 if a figure misses its goal
//
// Everything runs in one thread, and is measured in processor time. Two sides of a
// comparison alternate in slices of some milliseconds, so that other work of the
// machine affects both; a ratio is the median over the pairs of slices, with its
// 10th and 90th percentile. The C is compiled with gcc -O3 -march=native, once
// without and once with -ffast-math (which lets gcc add up in several lanes at
// once; the plain loop may not). Without gcc the comparisons are left out, and the
// output notes it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Figure is one number with its goal.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Low and High are the 10th and the 90th percentile.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Goal is the bound of Value; 0 is none.
	Goal  float64 `json:"goal,omitempty"`
	Below bool    `json:"below,omitempty"`
	// Short is the name in the summary, for figures with a goal.
	Short string `json:"-"`
}

func (f *Figure) missed() bool {
	if f.Goal == 0 {
		return false
	}
	if f.Below {
		return f.Value >= f.Goal
	}
	return f.Value < f.Goal
}

func (f *Figure) String() string {
	s := fmt.Sprintf("%-52s %9.3g %-8s (%.3g to %.3g)", f.Name, f.Value, f.Unit, f.Low, f.High)
	if f.Goal != 0 {
		s += fmt.Sprintf("  goal %s %g", f.sign(), f.Goal)
	}
	if f.missed() {
		s += "  MISSED"
	}
	return s
}

func (f *Figure) sign() string {
	if f.Below {
		return "<"
	}
	return "≥"
}

// report collects figures and prints each as it comes.
type report struct {
	Figures []*Figure `json:"figures"`
	Skipped []string  `json:"skipped,omitempty"`
	quiet   bool
}

func (r *report) add(f *Figure) {
	r.Figures = append(r.Figures, f)
	if !r.quiet {
		fmt.Println(f)
	}
}

func (r *report) skip(why string) {
	r.Skipped = append(r.Skipped, why)
	fmt.Fprintln(os.Stderr, "SKIPPED:", why)
}

func (r *report) summary() (line string, missed bool) {
	var parts []string
	for _, f := range r.Figures {
		if f.Goal == 0 {
			continue
		}
		part := fmt.Sprintf("%s %.3g %s (%s %g)", f.Short, f.Value, f.Unit, f.sign(), f.Goal)
		if f.missed() {
			part += " MISSED"
			missed = true
		}
		parts = append(parts, part)
	}

	for range r.Skipped {
		parts = append(parts, "a part SKIPPED")
	}

	return "kernels: " + strings.Join(parts, ", "), missed
}

func main() {
	pairs := flag.Int("pairs", 200, "pairs of slices of each comparison")
	asJSON := flag.Bool("json", false, "print one JSON object")
	check := flag.Bool("check", false, "exit with status 1 if a figure misses its goal")
	flag.Parse()
	runtime.LockOSThread()
	pin()
	r := &report{quiet: *asJSON}
	if err := run(r, *pairs); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}

	line, missed := r.summary()
	if *asJSON {
		out, err := json.Marshal(r)
		if err != nil {
			panic(err) // plain numbers and texts
		}
		line = string(out)
	}

	fmt.Println(line)
	if *check && missed {
		os.Exit(1)
	}
}

func run(r *report, pairs int) error {
	mem, err := newMemory()
	if err != nil {
		return err
	}
	defer mem.Close()
	if err := nativeFigures(r, mem, pairs); err != nil {
		return err
	}
	return laneFigures(r, mem, pairs)
}
