package rpcguardtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// socketEnv makes the process a server, on the path that it holds.
const socketEnv = "CAPGPU_RPCGUARDTEST_SOCKET"

// IsServer says whether this process was started by Start.
func IsServer() bool { return os.Getenv(socketEnv) != "" }

// Service is the service that Serve runs.
type Service struct {
	Serve func(conn *net.UnixConn) // one connection, until its end
	Held  func() string            // differences from the start; "": none
	Count func() int64             // how often clients got through to it
}

// Stats are the process's own counts.
type Stats struct {
	Conns, Count              int64
	Goroutines, FDs, Mappings int
	Held, Stacks              string
}

// idle: no connection, and nothing is left of any.
func (s Stats) idle() bool { return s.Conns == 0 && s.Held == "" }

// within: s holds no more than before.
func (s Stats) within(before Stats) bool {
	return s.Goroutines <= before.Goroutines && s.FDs <= before.FDs && s.Mappings <= before.Mappings
}

// Serve is a test in the server's process. It returns when Stop was called in
// the other one, and every connection has ended.
func Serve(t *testing.T, s Service) {
	l, err := net.Listen("unix", os.Getenv(socketEnv))
	require.NoError(t, err)
	var conns atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			serving.Go(func() {
				defer conns.Add(-1)
				s.Serve(c.(*net.UnixConn))
			})
		}
	})
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		require.NoError(t, out.Encode(look(s, conns.Load(), in.Text() == "stacks")))
	}

	require.NoError(t, l.Close())
	ended := make(chan struct{})
	go func() { serving.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("connections do not end")
	}
}

func look(s Service, conns int64, stacks bool) Stats {
	fds, _ := os.ReadDir("/proc/self/fd")
	maps, _ := os.ReadFile("/proc/self/maps")
	stats := Stats{
		Conns: conns, Held: s.Held(), Count: s.Count(),
		Goroutines: runtime.NumGoroutine(), FDs: len(fds), Mappings: bytes.Count(maps, []byte("memfd:")),
	}
	if stacks {
		var b strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		stats.Stacks = b.String()
	}
	return stats
}

// Log fails the test on every record of an error: a recovered panic, or a bug that only the
// log shows.
func Log(t *testing.T) *slog.Logger { return slog.New(failing{t}) }

type failing struct{ t *testing.T }

func (f failing) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (f failing) WithAttrs([]slog.Attr) slog.Handler           { return f }
func (f failing) WithGroup(string) slog.Handler                { return f }

func (f failing) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString("\n" + a.Key + ": " + a.Value.String())
		return true
	})
	f.t.Errorf("logged: %s%s", r.Message, b.String())
	return nil
}
