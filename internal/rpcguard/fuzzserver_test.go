package rpcguard

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"
)

// The fuzzed server runs in a process of its own: the test binary, started
// again with this variable holding the path to listen on.
const fuzzServerEnv = "CAPGPU_RPCGUARD_FUZZ_SERVER"

// fuzzStats is what the server says when it is asked.
type fuzzStats struct {
	Conns, Objects  int64
	Goroutines, FDs int
	Stacks          string
}

func runFuzzServer() {
	l, err := net.Listen("unix", os.Getenv(fuzzServerEnv))
	if err != nil {
		panic(err)
	}
	s := newService()
	go func() {
		for range s.order {
		}
	}()
	var conns atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			go func() {
				defer conns.Add(-1)
				limits := Limits{WriteTimeout: time.Second}
				_ = Serve(context.Background(), c.(*net.UnixConn), s.bootstrap(), limits)
			}()
		}
	}()
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		fds, _ := os.ReadDir("/proc/self/fd")
		stats := fuzzStats{Conns: conns.Load(), Objects: s.live.Load(), Goroutines: runtime.NumGoroutine(), FDs: len(fds)}
		if in.Text() == "stacks" {
			var b strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
			stats.Stacks = b.String()
		}
		_ = out.Encode(stats)
	}
}
