// Command soak makes many clients work on the built commands for a long time, kills
// processes of every kind, and compares the ledger with the kernel at every quiet
// point. Exit status 1: something is wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"capgpu/bench/dataplane/churn"
	"capgpu/bench/dataplane/figures"
)

func main() {
	churn.RunIfWorker()
	o := figures.SoakOptions{Say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	flag.StringVar(&o.Bin, "bin", "../bin", "folder of the built commands")
	minutes := flag.Float64("minutes", 10, "how long")
	flag.IntVar(&o.Sessions, "sessions", 1024, "open most of the time")
	flag.IntVar(&o.Buffers, "buffers", 100_000, "in all of the sessions")
	flag.IntVar(&o.Ops, "ops", 2000, "of each client, between two comparisons")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "of what is random")
	flag.Parse()
	o.For = time.Duration(*minutes * float64(time.Minute))
	fmt.Printf("seed %d\n", o.Seed)
	result, err := figures.Soak(context.Background(), o)
	if result != nil {
		result.Print(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	if !result.Good() {
		fmt.Fprintln(os.Stderr, "soak: something is not as it must be")
		os.Exit(1)
	}
}
