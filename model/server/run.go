package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/outcome"
)

// Run opens the session, loads the model, and serves until Close or the end of ctx;
// then it returns nil. A failure of the first load is an error, for instance
// gpuerr.Quota with the requested and the available amount. Run waits, for
// Options.Start, only for a service that does not exist yet. It recovers from all
// later failures: see the package comment.
//
//	loading ──► ready ──► recovering ──► ready …
//	              └─────► revoked ──Reopen──► recovering
func (s *Server) Run(ctx context.Context) (err error) {
	s.mu.Lock()
	if s.started || s.stopped {
		s.mu.Unlock()
		return gpuerr.New(gpuerr.Closed, "a server runs once")
	}

	s.started = true
	s.status.reason = "loading"
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	go func() {
		select {
		case <-s.signal.closing:
			cancel()
		case <-ctx.Done():
		}
	}()

	defer func() {
		s.place.close()
		s.mu.Lock()
		s.stopLocked(err)
		s.run.err = err
		s.mu.Unlock()
		close(s.run.ended)
	}()

	begun := time.Now()
	loadedOnce := false
	var wait backoff
	for {
		l, err := s.place.load(ctx, s.progress)
		switch {
		case ctx.Err() != nil:
			if l != nil {
				s.closeLoaded(l)
			}
			return nil
		case err != nil && !loadedOnce && !(passing(err) && time.Since(begun) < s.o.Start):
			return err
		case err != nil:
			s.delayed(err)
			if !wait.sleep(ctx) {
				return nil
			}
			continue
		}

		s.online(l, loadedOnce)
		loadedOnce = true
		since := time.Now()
		err = s.serve(ctx, l)
		stop := s.offline(err)
		s.closeLoaded(l)
		if ctx.Err() != nil {
			stop()
			return nil
		}

		if errors.Is(err, gpuerr.Revoked) && s.place.taken(ctx) {
			stop()
			if !s.revoked(ctx, err) {
				return nil
			}
		}

		if time.Since(since) > longLived {
			wait = backoff{}
		} else if !wait.sleep(ctx) {
			stop()
			return nil
		}
	}
}

// longLived is the time that a session must have served for the next one to be
// opened without a delay.
const longLived = 5 * time.Second

// closePatience bounds the wait for a session to close; after that the driver
// finishes alone.
const closePatience = 5 * time.Second

func (s *Server) closeLoaded(l *loaded) {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	l.close(ctx)
}

// passing reports whether an error may go away by itself.
func passing(err error) bool {
	switch gpuerr.CodeOf(err) {
	case gpuerr.Disconnected, gpuerr.DeviceLost, gpuerr.Busy, gpuerr.Banned, gpuerr.Revoked:
		return true
	}
	return false
}

// backoff is the wait before the next try.
type backoff struct{ last time.Duration }

const (
	leastPause = 20 * time.Millisecond
	mostPause  = 2 * time.Second
)

func (b *backoff) sleep(ctx context.Context) bool {
	b.last = min(max(2*b.last, leastPause), mostPause)
	t := time.NewTimer(b.last)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// progress reports how far the model is loaded.
func (s *Server) progress(done, total uint64) {
	s.mu.Lock()
	s.status.loading.done, s.status.loading.total = done, total
	s.mu.Unlock()
	s.o.Progress(done, total)
}

// delayed records why the model is not loaded yet.
func (s *Server) delayed(err error) {
	s.mu.Lock()
	news := s.status.reason != err.Error()
	s.status.reason = err.Error()
	s.mu.Unlock()
	if news {
		s.o.Log.Warn("the model is not loaded yet", "err", err)
	}
}

// online starts serving a loaded model.
func (s *Server) online(l *loaded, again bool) {
	s.setLive(l, again)
	z := l.size()
	s.o.Log.Info("serving", "model", s.info.Name, "device", l.device.Name, "epoch", l.device.Epoch,
		"sequences", z.sequences, "pages", z.pages, "pagePositions", z.pagePositions)
	s.o.Changed(lm.Ready, "")
}

func (s *Server) setLive(l *loaded, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live, s.size, s.status.device = l, l.size(), l.device
	s.status.state, s.status.reason = lm.Ready, ""
	if s.quiet == nil {
		s.refuse = nil
	}

	if again {
		s.status.totals.Recoveries++
	} else {
		close(s.run.loaded)
	}

	for _, r := range append(s.requests.shares.waiting(), s.requests.parked...) { // the cache may have become smaller
		if err := r.fits(s.size.positions() + 1); err != nil {
			s.endLocked(r, lm.Unfinished, err)
		}
	}
}

// offline ends the requests that had begun. The others end after Options.Patience,
// unless stop is called first or the model is back.
func (s *Server) offline(err error) (stop func()) {
	if err == nil {
		err = errStopping
	} else {
		s.o.Log.Warn("the session is over", "err", err)
		defer s.o.Changed(lm.Recovering, err.Error())
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = nil
	all := slices.Concat(s.requests.running, s.requests.shares.waiting(), s.requests.parked)
	s.requests.running = nil
	for _, r := range all {
		if r.state == waiting || s.resetLocked(r, err) {
			continue
		}
		s.endLocked(r, lm.Unfinished, err)
		if r.state == running {
			s.dropLocked(r) // gone with the session
			s.goneLocked(r)
		}
	}

	s.status.state, s.status.reason = lm.Recovering, err.Error()
	s.status.device.State = client.Recovering
	s.status.loading.done = 0
	epoch := s.status.totals.Recoveries
	timer := time.AfterFunc(max(0, s.o.Patience), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.status.state == lm.Recovering && s.status.totals.Recoveries == epoch && !s.stopped {
			s.refuseAllLocked(err)
		}
	})
	return func() { timer.Stop() }
}

// mostResets limits how often a request is computed again after resets that others
// caused.
const mostResets = 3

// resetLocked keeps a request after another's fault has reset its pass, so that it
// is computed again. Its text is known; it loses only time.
func (s *Server) resetLocked(r *request, err error) bool {
	if !innocent(err) || r.out.ended || s.stopped {
		return false
	}
	if r.state != running {
		return true
	}
	if r.gen.resets++; r.gen.resets > mostResets {
		return false
	}

	s.dropLocked(r)
	if r.out.full {
		s.parkLocked(r)
	} else {
		s.returnLocked(r)
	}

	return true
}

// refuseAllLocked ends the requests that wait, and answers err to new ones.
func (s *Server) refuseAllLocked(err error) {
	if s.quiet == nil {
		s.refuse = err
	}
	for _, r := range append(s.requests.shares.waiting(), s.requests.parked...) {
		s.endLocked(r, lm.Unfinished, err)
	}
}

// revoked waits for Reopen; false: ctx ended.
func (s *Server) revoked(ctx context.Context, err error) bool {
	s.o.Log.Error("the session was revoked; nothing is served until this server is told to open another", "err", err)
	s.mu.Lock()
	s.status.state, s.status.reason = lm.Revoked, err.Error()
	s.refuseAllLocked(err)
	s.mu.Unlock()
	s.o.Changed(lm.Revoked, err.Error())
	select {
	case <-s.signal.reopen:
	case <-ctx.Done():
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.state = lm.Recovering
	return true
}

// stopLocked ends everything for good.
func (s *Server) stopLocked(err error) {
	s.stopped = true
	s.status.state, s.status.reason = lm.Stopped, "stopped"
	if err != nil {
		s.status.reason = err.Error()
	}
	s.refuse = errStopping
	for _, r := range slices.Concat(s.requests.shares.waiting(), s.requests.running, s.requests.parked) {
		s.endLocked(r, lm.Unfinished, errStopping)
	}
	s.quietLocked()
}

// translate turns the failure of a pass into the error of its requests, by the
// codes of package lm.
func translate(l *loaded, err error) error {
	code := gpuerr.CodeOf(err)
	if code.Class() == gpuerr.ClassDisconnected || errors.Is(err, context.Canceled) || lostWork(err) {
		t := time.NewTimer(sessionEndDelay)
		defer t.Stop()
		select {
		case <-l.over:
			return l.why()
		case <-t.C:
		}
	}

	switch code {
	case gpuerr.DeviceLost, gpuerr.Disconnected, gpuerr.Revoked, gpuerr.Poisoned:
		return err
	}

	if innocent(err) {
		return fmt.Errorf("%w: another's fault had the device reset: %w", gpuerr.DeviceLost, err)
	}

	var o *client.OutcomeError
	if errors.As(err, &o) {
		switch {
		case o.Outcome.Kind == outcome.TimedOut:
			return gpuerr.New(gpuerr.DeviceLost, "the device missed the deadline of a pass: %v", err)
		case o.Outcome.Cause == outcome.TrapCause, o.Outcome.Cause == outcome.IOMMUFault, o.Outcome.Cause == outcome.Poisoned:
			return gpuerr.New(gpuerr.Poisoned, "%v", err)
		}
	}

	return gpuerr.New(gpuerr.DeviceLost, "a pass did not end well: %v", err)
}

// sessionEndDelay is the time after its work in which the end of a session may
// become known.
const sessionEndDelay = time.Second

func lostWork(err error) bool {
	var o *client.OutcomeError
	return errors.As(err, &o) && (o.Outcome.Kind == outcome.DeviceLost || o.Outcome.Kind == outcome.Revoked)
}

// innocent reports whether a pass was reset by another's fault.
func innocent(err error) bool {
	var o *client.OutcomeError
	return errors.As(err, &o) && o.Outcome.Kind == outcome.Innocent
}
