// Command attack attacks the built commands for a while, beside a victim that does
// checked work, and prints the results. Exit status 1: something is wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"capgpu/bench/attack"
)

// timedFor is the minimal duration for meaningful times: some seconds of each
// attack.
const timedFor = 60 * time.Second

func main() {
	attack.RunIfAttacker()
	o := attack.Options{Say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	flag.StringVar(&o.Bin, "bin", "../bin", "folder of the built commands")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "of what is random")
	seconds := flag.Int("seconds", 60, "for all attacks together")
	flag.Parse()
	o.For = time.Duration(*seconds) * time.Second
	o.Timed = o.For >= timedFor
	fmt.Printf("seed %d\n", o.Seed)
	rows, err := attack.Run(context.Background(), o)
	good := attack.Print(os.Stdout, rows)
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
	if !good {
		os.Exit(1)
	}

	fmt.Println("the victim had no error, and nothing was left behind")
}
