package figures

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/report"
	"capgpu/bench/dataplane/service"
)

// wakes is P3.
func wakes(ctx context.Context, e *Env) ([]report.Row, error) {
	l, err := openLauncher(ctx, e.Service, 256)
	if err != nil {
		return nil, err
	}

	r, err := wakeLatency(e, l)
	if err == nil {
		err = l.close()
	}
	if err != nil {
		return nil, err
	}

	e.Say("P3: an idle driver with %d sessions", e.Sessions)
	busy, err := idleCPU(ctx, e)
	if err != nil {
		return nil, err
	}

	e.Say("P3: %d doorbells of random phase", e.Doorbells)
	rung, err := lostWakes(ctx, e)
	if err != nil {
		return nil, err
	}

	return []report.Row{
		report.Ratio("P3", "launch round trip after 1 ms idle / raw futex round trip", r, report.AtMost(1.5, 1.5)),
		report.Value("P3", fmt.Sprintf("CPU of an idle driver with %d sessions, over %v", e.Sessions, e.Idle), report.Number(busy)+" %", "", busy, "%", report.AtMost(0.5, 0.5)),
		report.Value("P3", fmt.Sprintf("lost wakes in %d doorbells of random phase", rung.doorbells), report.Number(float64(rung.lost)), "", float64(rung.lost), "", report.AtMost(0, 0)),
		report.Value("P3", "of those, found the driver asleep, or about to be, and woke it by a system call", report.Number(float64(rung.sent)), "", float64(rung.sent), "", report.Target{}),
		report.Value("P3", "and the client slept until it was woken", report.Number(float64(rung.slept)), "", float64(rung.slept), "", report.Target{}),
	}, nil
}

// idleTime is the time after which all processes sleep.
const idleTime = time.Millisecond

// pass lets time pass without giving up the CPU, so that the next measurement
// begins in a running thread on both sides of the comparison.
func pass(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

// wakeLatency times round trips that begin when the other side sleeps.
func wakeLatency(e *Env, l *launcher) (paired.Result, error) {
	after := func(f func() error) paired.Side {
		return paired.Timed(func() (time.Duration, error) {
			pass(idleTime)
			start := time.Now()
			err := f()
			return time.Since(start), err
		})
	}
	peer := func(slice time.Duration, add func(float64)) error {
		return e.Raw.Futex(func(round func() error) error { return after(round)(slice, add) })
	}
	return paired.Compare(e.pairs(0.2), after(l.roundTrip), peer)
}

// openMany opens this many sessions with a queue each; each has launched once.
func openMany(ctx context.Context, e *Env, n int, entries uint32) (all []*launcher, closeAll func() error, err error) {
	closeAll = func() error {
		var first error
		for _, l := range all {
			if err := l.close(); err != nil && first == nil {
				first = err
			}
		}
		return first
	}

	for range n {
		l, err := openLauncher(ctx, e.Service, entries)
		if err == nil {
			all = append(all, l)
			err = l.roundTrip()
		}
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("session %d of %d: %w", len(all), n, err), closeAll())
		}
	}

	return all, closeAll, nil
}

const smallQueue = 64

// idleCPU is the percentage of a CPU that the driver uses without work.
func idleCPU(ctx context.Context, e *Env) (percent float64, err error) {
	_, closeAll, err := openMany(ctx, e, e.Sessions, smallQueue)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()

	pid, err := e.Service.DriverPID()
	if err != nil {
		return 0, err
	}

	time.Sleep(e.Settle)
	before, err := service.CPUTime(pid)
	if err != nil {
		return 0, err
	}

	start := time.Now()
	time.Sleep(e.Idle)
	watched := time.Since(start)
	after, err := service.CPUTime(pid)
	return 100 * float64(after-before) / float64(watched), err
}

const (
	// doorbellChunk is the number of doorbells that share one deadline.
	doorbellChunk = 4096
	// lostAfter is the time after which a chunk that does not end counts as a lost
	// wake: a thousand times its duration.
	lostAfter = 20 * time.Second
	// longestPhase is above the time that either side polls before it sleeps, some
	// 50 µs.
	longestPhase = 17 // log2 of nanoseconds: 131 µs
)

// ringing is the result of doorbells.
type ringing struct {
	doorbells, lost int
	sent, slept     uint64 // see client.Queue.Wakes
}

// lostWakes rings at all moments of the driver's transition to sleep. A launch
// without a wake would wait for ever.
func lostWakes(ctx context.Context, e *Env) (r ringing, err error) {
	l, err := openLauncher(ctx, e.Service, 256)
	if err != nil {
		return r, err
	}
	defer func() {
		r.sent, r.slept = l.queue.Wakes()
		err = errors.Join(err, l.close())
	}()

	end := time.Now().Add(e.Longest * 4 / 10)
	for r.doorbells < e.Doorbells && time.Now().Before(end) {
		limited, cancel := context.WithTimeout(ctx, lostAfter)
		l.ctx = limited
		n, err := ringAtRandom(l, min(doorbellChunk, e.Doorbells-r.doorbells))
		cancel()
		l.ctx = ctx
		r.doorbells += n
		if err == nil {
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return r, err
		}

		r.lost++
		e.Say("P3: doorbell %d woke nobody", r.doorbells)
		if err := l.push(1); err != nil { // another doorbell
			return r, err
		}
		if err := l.collect(2); err != nil {
			return r, err
		}
	}

	return r, nil
}

func ringAtRandom(l *launcher, n int) (rung int, err error) {
	for ; rung < n; rung++ {
		if err := l.roundTrip(); err != nil {
			return rung, err
		}
		if phase := rand.IntN(2 * longestPhase); phase < longestPhase { // else at once
			pass(time.Duration(1<<phase + rand.IntN(1<<phase)))
		}
	}
	return rung, nil
}
