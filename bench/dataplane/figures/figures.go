// Package figures measures the data plane of the running service: one function per
// target, each beside its peer in the same run. docs/performance-method.md
// describes the method and the targets.
package figures

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/neighbour"
	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
	"capgpu/bench/dataplane/service"
)

// Options set the amount of measuring. The zero value is nothing: start from
// Defaults.
type Options struct {
	Bin     string        // folder of the built commands
	Pairs   int           // of slices, in each comparison
	Slice   time.Duration // 5 to 20 ms
	Longest time.Duration // of one figure
	Say     func(format string, args ...any)

	Sessions  int           // of P3 and P12
	Settle    time.Duration // of P3, from the opening of the last session until it is idle
	Idle      time.Duration // of P3, how long the idle driver is watched
	Doorbells int           // of P3
	Buffers   int           // of P7, of the large session
	Closes    int           // of P7, sessions closed under a hammer
	Ops       int           // of P12
	Kills     int           // of P8 and P12; negative: each figure's own
	Hangs     int           // of P9; 0: none
	Hostile   []string      // of P9: some of neighbour.Hostile
	Rounds    int           // single round trips of each curve
	// For P10: submissions that are compared with the model, and the fuzzing time;
	// 0: none.
	Submissions uint64
	Fuzz        time.Duration
	Seeds       int      // of P11
	Models      []string // of P4 and P5: some of ModelNames
}

// Defaults are the options of "make bench".
func Defaults() Options {
	return Options{
		Pairs: 200, Slice: 10 * time.Millisecond, Longest: 60 * time.Second,
		Sessions: 1024, Settle: 6 * time.Second, Idle: 5 * time.Second, Doorbells: 1_000_000,
		Buffers: 100_000, Closes: 200, Ops: 100_000, Kills: -1, Hangs: 200, Rounds: 20_000,
		Submissions: 100_000_000, Fuzz: time.Minute, Seeds: 2000,
		Models: ModelNames, Hostile: neighbour.Names(),
	}
}

// Env is the environment that figures share.
type Env struct {
	Options
	Service *service.Service
	Raw     *peers.Raw
}

// wantFiles is enough for a session of 100,000 buffers; the driver inherits this
// limit.
const wantFiles = 300_000

// Open starts the service and the raw peer.
func Open(o Options) (_ *Env, err error) {
	if err := raiseFiles(); err != nil {
		o.Say("open files: %v", err)
	}
	e := &Env{Options: o}
	defer func() {
		if err != nil {
			_ = e.Close()
		}
	}()
	if e.Raw, err = peers.NewRaw(); err != nil {
		return nil, err
	}
	e.Service, err = service.Start(o.Bin, peers.ServerCPU, service.Options{})
	return e, err
}

// raiseFiles raises the limit of open files of this process, and of its children,
// as far as possible.
func raiseFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	if l.Max < wantFiles {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: wantFiles, Max: wantFiles}); err == nil {
			return nil
		} // only root may; otherwise the old limit stays
	}
	l.Cur = l.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

// openFiles is this process's limit.
func openFiles() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int(min(l.Cur, 1<<30))
}

// Close ends everything.
func (e *Env) Close() error {
	var first error
	if e.Service != nil {
		first = e.Service.Close()
	}
	if e.Raw != nil {
		if err := e.Raw.Close(); first == nil {
			first = err
		}
	}
	return first
}

// pairs are the options of a comparison that may take this part of the figure's
// time.
func (e *Env) pairs(part float64) paired.Options {
	return paired.Options{Pairs: e.Pairs, Slice: e.Slice, Longest: time.Duration(part * float64(e.Longest))}
}

// spin is the peer that every run measures.
func (e *Env) spin() paired.Side {
	rounds := paired.Side(nil)
	return func(slice time.Duration, add func(float64)) error {
		return e.Raw.Spin(func(round func() error) error {
			if rounds == nil {
				rounds = paired.Rounds(round)
			}
			return rounds(slice, add)
		})
	}
}

// Figure is one target.
type Figure struct {
	ID      string
	Page    string // of docs/ that shows it
	What    string
	Measure func(context.Context, *Env) ([]report.Row, error)
}

// The pages of docs/ that show figures.
const (
	Performance = "performance.md"
	Reliability = "reliability.md"
)

// OnPage returns the IDs of the figures that a page shows.
func OnPage(page string) (ids []string) {
	for _, f := range All {
		if f.Page == page {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// All are the targets, in order.
var All = []Figure{
	{"P1", Performance, "launch round trip at depth 1", launchRoundTrip},
	{"P2", Performance, "batches of launches", batches},
	{"P3", Performance, "wakes, and what an idle driver costs", wakes},
	{"P4", Performance, "a language model through the service beside the same kernels in-process", throughService},
	{"P5", Performance, "a language model through the service beside a program in C", besideC},
	{"P6", Performance, "life of a buffer", bufferLife},
	{"P7", Performance, "closing a session", closing},
	{"P8", Reliability, "the death of a driver", recovery},
	{"P9", Reliability, "hangs, and neighbours that are hostile", containment},
	{"P10", Reliability, "hostile input: against a model, and fuzzed", hostileInput},
	{"P11", Reliability, "simulation on virtual time, and the models of the ring", simulated},
	{"P12", Reliability, "the ledger against the kernel, and many sessions", exactness},
}

// Lookup finds a target.
func Lookup(id string) (Figure, error) {
	for _, f := range All {
		if f.ID == id {
			return f, nil
		}
	}
	var ids []string
	for _, f := range All {
		ids = append(ids, f.ID)
	}
	return Figure{}, fmt.Errorf("there is no figure %q; there are %s", id, strings.Join(ids, ", "))
}
