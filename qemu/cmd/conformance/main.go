// Command conformance runs the suite of behaviours (package conformance) on the mock and
// on edu, by the Go client and by Cap'n Proto, and prints the table. It ends with status
// 1 if any cell failed or is missing.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"capgpu/conformance"
	"capgpu/qemu"
)

func main() {
	var x qemu.Conformance
	asJSON := flag.Bool("json", false, "print the results as JSON")
	flag.BoolVar(&x.Full, "full", false, "as often as the behaviours' sources do it, instead of a few times")
	flag.StringVar(&x.Run, "run", "", "only these behaviours: a regular expression of two digits, as 0[14]")
	devices := flag.String("devices", "", "only this device: mock, discrete (a mock with memory of its own) or edu")
	verbose := flag.Bool("v", false, "print what was counted in each cell, too")
	flag.Parse()
	if *devices != "" {
		x.Devices = strings.Split(*devices, ",")
	}

	x.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	results, err := x.Results(ctx)
	if *asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(results)
	} else {
		print(results, *verbose)
	}

	failed := slices.ContainsFunc(results, func(r conformance.Result) bool { return r.Verdict == conformance.Fail })
	missing := x.Run == "" && len(results)%len(conformance.All()) != 0
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	if missing {
		fmt.Fprintln(os.Stderr, "conformance: cells are missing: a run ended before its last behaviour")
	}
	if !*asJSON {
		fmt.Printf("%d cells in %v\n", len(results), time.Since(began).Round(time.Second))
	}

	if failed || missing || err != nil {
		stop()
		os.Exit(1)
	}
}

// print prints the table, and below it the reason of every cell that is no pass.
func print(results []conformance.Result, verbose bool) {
	var stacks []string
	cells := map[string]conformance.Verdict{}
	for _, r := range results {
		if !slices.Contains(stacks, r.Stack) {
			stacks = append(stacks, r.Stack)
		}
		cells[fmt.Sprint(r.Stack, r.Number)] = r.Verdict
	}

	slices.SortFunc(stacks, func(a, b string) int { // the mock first, as the others' reference
		return strings.Compare(b[:1]+a, a[:1]+b)
	})
	w := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', 0)
	fmt.Fprintf(w, "behaviour\t%s\n", strings.Join(stacks, "\t"))
	for _, b := range conformance.All() {
		fmt.Fprintf(w, "%2d %s", b.Number, b.Name)
		for _, s := range stacks {
			fmt.Fprintf(w, "\t%s", cells[fmt.Sprint(s, b.Number)])
		}
		fmt.Fprintln(w)
	}

	_ = w.Flush()
	for _, r := range results {
		if r.Verdict != conformance.Pass {
			fmt.Println(r)
		}
		for _, note := range r.Notes {
			if verbose {
				fmt.Printf("%s %d: %s\n", r.Stack, r.Number, note)
			}
		}
	}
}
