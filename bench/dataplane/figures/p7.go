package figures

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/report"
	"capgpu/client"
	"capgpu/control"
)

const (
	fewBuffers = 100
	// spareFiles are this process's descriptors besides one for each buffer.
	spareFiles = 2000
	// makers make buffers in parallel.
	makers = 16
	// closePairs is the number of comparisons, if there is time.
	closePairs = 5
	// longestReclaim is far above the time that it takes to give 100,000 buffers
	// back.
	longestReclaim = 60 * time.Second
)

// closing is P7.
func closing(ctx context.Context, e *Env) ([]report.Row, error) {
	// Package client keeps a descriptor of each buffer, so the large session speaks
	// the protocol itself and keeps none. The package's own additional cost is the
	// second row.
	wire, gone, err := closeRatio(ctx, e, 0.4, e.Buffers, openBare)
	if err != nil {
		return nil, err
	}

	fits := min(e.Buffers, openFiles()-spareFiles)
	whole, _, err := closeRatio(ctx, e, 0.2, fits, openClient)
	if err != nil {
		return nil, err
	}

	tried, accepted, err := usesAfterClose(ctx, e)
	if err != nil {
		return nil, err
	}

	return []report.Row{
		report.Ratio("P7", fmt.Sprintf("close of a session with %d buffers, from Close to its answer / with %d", e.Buffers, fewBuffers), wire, report.AtMost(3, 3)),
		report.Value("P7", "the same until its memory is back and its charges, which nobody waits for", report.Nanos(gone.Ours), report.Nanos(gone.Peer), gone.Ratio, "", report.Target{}),
		report.Ratio("P7", fmt.Sprintf("the same by package client, which has a descriptor of each, with %d buffers", fits), whole, report.Target{}),
		report.Value("P7", fmt.Sprintf("uses accepted of %d tried after close returned, in %d sessions", tried, e.Closes), report.Number(float64(accepted)), "", float64(accepted), "", report.AtMost(0, 0)),
	}, nil
}

// closable is a session that gets buffers and is closed.
type closable struct {
	create func() error
	close  func() error
}

// openClient opens a session as programs do.
func openClient(ctx context.Context, e *Env) (closable, error) {
	l, err := openLauncher(ctx, e.Service, 16)
	if err != nil {
		return closable{}, err
	}
	return closable{
		create: func() error {
			_, err := l.session.CreateBuffer(ctx, 4096, client.Storage)
			return err
		},
		close: l.close,
	}, nil
}

// openBare opens a session with only the socket in this process.
func openBare(ctx context.Context, e *Env) (closable, error) {
	h, err := newHammer(ctx, e.Service)
	if err != nil {
		return closable{}, err
	}

	return closable{
		create: func() error {
			m, err := h.createBuffer(ctx)
			if err == nil {
				m.CloseFDs()
			}
			return err
		},
		close: func() error {
			_, err := h.caller.Call(ctx, control.TypeClose, nil, nil)
			return errors.Join(err, h.release())
		},
	}, nil
}

// closeRatio compares closing a session of many buffers with closing one of few: until
// Close answers, and until nothing is left.
func closeRatio(ctx context.Context, e *Env, part float64, many int, open func(context.Context, *Env) (closable, error)) (answered, gone paired.Result, err error) {
	var few, all [2][]float64
	for start := time.Now(); len(few[0]) < closePairs; {
		small, err := closeTime(ctx, e, fewBuffers, open)
		if err != nil {
			return answered, gone, err
		}

		large, err := closeTime(ctx, e, many, open)
		if err != nil {
			return answered, gone, err
		}

		for i := range few {
			few[i], all[i] = append(few[i], small[i]), append(all[i], large[i])
		}

		e.Say("P7: closing takes %s with %d buffers, %s with %d; until nothing is left %s and %s",
			report.Nanos(large[0]), many, report.Nanos(small[0]), fewBuffers, report.Nanos(large[1]), report.Nanos(small[1]))
		took := time.Since(start)
		if took+took/time.Duration(len(few[0])) > time.Duration(part*float64(e.Longest)) {
			break
		}
	}

	return ratioOf(all[0], few[0]), ratioOf(all[1], few[1]), nil
}

// ratioOf compares pairs of measurements.
func ratioOf(ours, peer []float64) paired.Result {
	ratios := make([]float64, len(ours))
	for i := range ratios {
		ratios[i] = ours[i] / peer[i]
	}
	q := paired.Quantiles(ratios, 0.5, 0.1, 0.9)
	return paired.Result{Ratio: q[0], Low: q[1], High: q[2], Ours: paired.Median(ours), Peer: paired.Median(peer), Pairs: len(ratios)}
}

// closeTime is the time to close a session with n buffers: until Close answers, and
// until nothing is left of it, because the next measurement must not share the
// driver with its remains.
func closeTime(ctx context.Context, e *Env, n int, open func(context.Context, *Env) (closable, error)) (nanos [2]float64, err error) {
	s, err := open(ctx, e)
	if err != nil {
		return nanos, err
	}

	var left atomic.Int64
	left.Store(int64(n))
	failures := make(chan error, makers)
	for range makers {
		go func() {
			for left.Add(-1) >= 0 {
				if err := s.create(); err != nil {
					failures <- err
					return
				}
			}
			failures <- nil
		}()
	}

	for range makers {
		err = errors.Join(err, <-failures)
	}

	if err != nil {
		return nanos, errors.Join(err, s.close())
	}

	start := time.Now()
	err = s.close()
	nanos[0] = float64(time.Since(start))
	if err == nil {
		err = e.Service.AwaitReclaimed(ctx, longestReclaim)
	}

	nanos[1] = float64(time.Since(start))
	return nanos, err
}

// longestUse bounds the hammering of a session before it is closed.
const longestUse = 3 * time.Millisecond

// usesAfterClose hammers sessions while they are closed from elsewhere, with a
// client that ignores that: its ring and its memory stay mapped.
func usesAfterClose(ctx context.Context, e *Env) (tried, accepted int, err error) {
	end := time.Now().Add(e.Longest * 3 / 10)
	for n := 0; n < e.Closes && time.Now().Before(end); n++ {
		h, err := newHammer(ctx, e.Service)
		if err != nil {
			return tried, accepted, err
		}
		done := make(chan error, 1)
		go func() { done <- h.run() }()
		time.Sleep(time.Duration(rand.Int64N(int64(longestUse))))
		err = h.closeSession(ctx)
		err = errors.Join(err, <-done, h.release())
		tried, accepted = tried+h.tried, accepted+h.accepted
		if err != nil {
			return tried, accepted, err
		}
	}

	return tried, accepted, nil
}
