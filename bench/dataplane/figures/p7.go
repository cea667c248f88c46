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
	// spareFiles are what this process needs besides one for each buffer.
	spareFiles = 2000
	// makers make buffers at once.
	makers = 16
	// closePairs is how often the two are compared, if there is time.
	closePairs = 5
)

// closing is P7.
func closing(ctx context.Context, e *Env) ([]report.Row, error) {
	// Package client keeps a descriptor of each buffer, so the large session speaks the
	// wires itself and keeps none. What the package does besides is the second row.
	wire, err := closeRatio(ctx, e, 0.4, e.Buffers, openBare)
	if err != nil {
		return nil, err
	}
	fits := min(e.Buffers, openFiles()-spareFiles)
	whole, err := closeRatio(ctx, e, 0.2, fits, openClient)
	if err != nil {
		return nil, err
	}
	tried, accepted, err := usesAfterClose(ctx, e)
	if err != nil {
		return nil, err
	}
	return []report.Row{
		report.Ratio("P7", fmt.Sprintf("close of a session with %d buffers, from Close to its answer / with %d", e.Buffers, fewBuffers), wire, report.AtMost(2, 1.2)),
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

// openBare opens a session of which this process has the socket and nothing else.
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

// closeRatio compares closing a session of many buffers with closing one of few.
func closeRatio(ctx context.Context, e *Env, part float64, many int, open func(context.Context, *Env) (closable, error)) (r paired.Result, err error) {
	var few, all, ratios []float64
	for start := time.Now(); len(ratios) < closePairs; {
		small, err := closeTime(ctx, e, fewBuffers, open)
		if err != nil {
			return r, err
		}
		large, err := closeTime(ctx, e, many, open)
		if err != nil {
			return r, err
		}
		few, all, ratios = append(few, small), append(all, large), append(ratios, large/small)
		e.Say("P7: closing takes %s with %d buffers, %s with %d", report.Nanos(large), many, report.Nanos(small), fewBuffers)
		took := time.Since(start)
		if took+took/time.Duration(len(ratios)) > time.Duration(part*float64(e.Longest)) {
			break
		}
	}
	q := paired.Quantiles(ratios, 0.5, 0.1, 0.9)
	return paired.Result{Ratio: q[0], Low: q[1], High: q[2], Ours: paired.Median(all), Peer: paired.Median(few), Pairs: len(ratios)}, nil
}

// closeTime is how long it takes to close a session with n buffers.
func closeTime(ctx context.Context, e *Env, n int, open func(context.Context, *Env) (closable, error)) (nanos float64, err error) {
	s, err := open(ctx, e)
	if err != nil {
		return 0, err
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
		return 0, errors.Join(err, s.close())
	}
	start := time.Now()
	err = s.close()
	return float64(time.Since(start)), err
}

// longestUse is how long a session is hammered before it is closed.
const longestUse = 3 * time.Millisecond

// usesAfterClose hammers sessions while they are closed from elsewhere, with a client
// that does not care: its ring and its memory stay mapped.
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
