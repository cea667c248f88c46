// Command bench-hw measures the cost of the service over the bare kernel, on an edu function
// in a virtual machine: each figure is a ratio, and has a bound (docs/bench-hw.md). With one
// figure requested, its ratio is the last word printed. A missed bound is printed, and is no
// failure of the command.
//
//	go run ./qemu/cmd/bench-hw [-json] [-pairs N] [irq|map|ioctls ...]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"capgpu/qemu"
)

func main() { os.Exit(run()) }

func run() int {
	asJSON := flag.Bool("json", false, "print JSON")
	pairs := flag.Int("pairs", 500, "how often each side has its turn")
	verbose := flag.Bool("v", false, "show what the guest prints on standard error")
	flag.Parse()
	names := flag.Args()
	if len(names) == 0 {
		names = qemu.HardwareFigures()
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	guest := io.Discard
	if *verbose {
		guest = os.Stderr
	}

	figures, err := qemu.BenchHardware(ctx, names, *pairs, guest, func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "bench-hw: "+format+"\n", args...)
	})
	if err == nil {
		err = show(os.Stdout, figures, *asJSON)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-hw:", err)
		return 1
	}

	return 0
}

func show(w io.Writer, figures []qemu.HardwareFigure, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(figures)
	}

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tours\tpeer\tratio\tmust be\t\t")
	for _, f := range figures {
		met := "met"
		if !f.Met {
			met = "MISSED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t<= %v\t%s\t\n", f.Name, duration(f.Ours), duration(f.Peer), f.Ratio, f.Bound, met)
	}

	if err := t.Flush(); err != nil {
		return err
	}

	for _, f := range figures {
		fmt.Fprintf(w, "%s: %s", f.Name, f.What)
		if f.Others != "" {
			fmt.Fprintf(w, " (%s)", f.Others)
		}
		fmt.Fprintln(w)
	}

	if len(figures) == 1 {
		fmt.Fprintf(w, "%s %.3f\n", figures[0].Name, figures[0].Ratio)
	}

	return nil
}

func duration(ns float64) string {
	if ns == 0 {
		return "-"
	}
	return time.Duration(ns).Round(100 * time.Nanosecond).String()
}
