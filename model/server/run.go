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

// Run opens the session, loads the model, and serves until Close or the end of ctx; then
// it returns nil. What keeps the model from being loaded the first time is an error, for
// instance gpuerr.Quota with what is asked and available; only a service that is not there
// yet is waited for, for Options.Start. What comes later is recovered from: see the
// package comment.
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
	s.reason = "loading"
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() {
		s.place.close()
		s.mu.Lock()
		s.stopLocked(err)
		s.runErr = err
		s.mu.Unlock()
		close(s.ran)
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

// longLived is how long a session must have served to be followed by another at once.
const longLived = 5 * time.Second

// closePatience is how long the end of a session is waited for; the driver finishes alone.
const closePatience = 5 * time.Second

func (s *Server) closeLoaded(l *loaded) {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	l.close(ctx)
}

// passing says that an error may go away by itself.
func passing(err error) bool {
	switch gpuerr.CodeOf(err) {
	case gpuerr.Disconnected, gpuerr.DeviceLost, gpuerr.Busy, gpuerr.Banned, gpuerr.Revoked:
		return true
	}
	return false
}

// backoff is how long to wait before the next try.
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

// progress is told while the model is loaded.
func (s *Server) progress(done, total uint64) {
	s.mu.Lock()
	s.loading.done, s.loading.total = done, total
	s.mu.Unlock()
	s.o.Progress(done, total)
}

// delayed tells why the model is not loaded yet.
func (s *Server) delayed(err error) {
	s.mu.Lock()
	news := s.reason != err.Error()
	s.reason = err.Error()
	s.mu.Unlock()
	if news {
		s.o.Log.Warn("the model is not loaded yet", "err", err)
	}
}

// online begins to serve.
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
	s.live, s.size, s.device = l, l.size(), l.device
	s.state, s.reason = lm.Ready, ""
	if s.quiet == nil {
		s.refuse = nil
	}
	if again {
		s.totals.Recoveries++
	} else {
		close(s.first)
	}
	for _, r := range append(s.shares.waiting(), s.parked...) { // the cache may have become smaller
		if err := r.fits(s.size.positions() + 1); err != nil {
			s.endLocked(r, lm.Unfinished, err)
		}
	}
}

// offline ends the requests that had begun. Those that have not are ended after
// Options.Patience unless stop is called before, or the model is back.
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
	all := slices.Concat(s.running, s.shares.waiting(), s.parked)
	s.running = nil
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
	s.state, s.reason = lm.Recovering, err.Error()
	s.device.State = client.Recovering
	s.loading.done = 0
	epoch := s.totals.Recoveries
	timer := time.AfterFunc(max(0, s.o.Patience), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.state == lm.Recovering && s.totals.Recoveries == epoch && !s.stopped {
			s.refuseAllLocked(err)
		}
	})
	return func() { timer.Stop() }
}

// mostResets is how often a request is computed again because of others.
const mostResets = 3

// resetLocked keeps a request whose pass was reset by another's fault, to be computed
// again: its text is known, and only its time is lost.
func (s *Server) resetLocked(r *request, err error) bool {
	if !innocent(err) || r.ended || s.stopped {
		return false
	}
	if r.state != running {
		return true
	}
	if r.resets++; r.resets > mostResets {
		return false
	}
	s.dropLocked(r)
	if r.full {
		s.parkLocked(r)
	} else {
		s.returnLocked(r)
	}
	return true
}

// refuseAllLocked ends who waits, and answers err to who comes.
func (s *Server) refuseAllLocked(err error) {
	if s.quiet == nil {
		s.refuse = err
	}
	for _, r := range append(s.shares.waiting(), s.parked...) {
		s.endLocked(r, lm.Unfinished, err)
	}
}

// revoked waits for Reopen; false: ctx ended.
func (s *Server) revoked(ctx context.Context, err error) bool {
	s.o.Log.Error("the session was revoked; nothing is served until this server is told to open another", "err", err)
	s.mu.Lock()
	s.state, s.reason = lm.Revoked, err.Error()
	s.refuseAllLocked(err)
	s.mu.Unlock()
	s.o.Changed(lm.Revoked, err.Error())
	select {
	case <-s.reopen:
	case <-ctx.Done():
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = lm.Recovering
	return true
}

// stopLocked ends everything for good.
func (s *Server) stopLocked(err error) {
	s.stopped = true
	s.state, s.reason = lm.Stopped, "stopped"
	if err != nil {
		s.reason = err.Error()
	}
	s.refuse = errStopping
	for _, r := range slices.Concat(s.shares.waiting(), s.running, s.parked) {
		s.endLocked(r, lm.Unfinished, errStopping)
	}
	s.quietLocked()
}

// truth is what a failed pass says of the requests that were in it, by the codes of
// package lm.
func truth(l *loaded, err error) error {
	code := gpuerr.CodeOf(err)
	if code.Class() == gpuerr.ClassDisconnected || errors.Is(err, context.Canceled) || lostWork(err) {
		t := time.NewTimer(sessionWord)
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

// sessionWord is how long the end of a session may follow the end of its work.
const sessionWord = time.Second

func lostWork(err error) bool {
	var o *client.OutcomeError
	return errors.As(err, &o) && (o.Outcome.Kind == outcome.DeviceLost || o.Outcome.Kind == outcome.Revoked)
}

// innocent says that a pass was reset by another's fault.
func innocent(err error) bool {
	var o *client.OutcomeError
	return errors.As(err, &o) && o.Outcome.Kind == outcome.Innocent
}
