package server

import (
	"context"
	"io"
	"slices"
	"time"

	"capgpu/model/lm"
	"capgpu/model/sample"
)

// Next implements lm.Stream.
func (r *request) Next(ctx context.Context, out []lm.Token) (int, error) {
	select {
	case r.pulling <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-r.pulling }()
	for {
		if n, over, err := r.take(out); n > 0 || over || len(out) == 0 {
			return n, err
		}
		select {
		case <-r.more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// take is Next of what is there.
func (r *request) take(out []lm.Token) (n int, over bool, err error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	n = copy(out, r.buf)
	r.buf = slices.Delete(r.buf, 0, n) // clears the end: alternatives are not kept alive
	if r.full && len(r.buf) <= r.s.o.Ahead/2 {
		r.full = false
		r.s.pulledLocked(r)
	}
	if r.state == gone && len(r.buf) == 0 {
		r.s.forgetLocked(r)
	}
	switch {
	case n > 0 || !r.ended:
		return n, false, nil
	case r.err != nil:
		return 0, true, r.err
	}
	return 0, true, io.EOF
}

// Finish implements lm.Stream.
func (r *request) Finish() lm.Finish {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.finish
}

// Usage implements lm.Stream.
func (r *request) Usage() lm.Usage {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.counted
}

// Close implements lm.Stream. It waits for the pass that is under way.
func (r *request) Close() error {
	r.cancel()
	<-r.released
	return nil
}

// cancel ends what has not ended; what it holds is given back soon.
func (r *request) cancel() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.endLocked(r, lm.Cancelled, nil)
	r.s.forgetLocked(r)
}

// forgetLocked: nobody reads what r has told, or all of it was read.
func (s *Server) forgetLocked(r *request) {
	clear(r.buf)
	r.buf = nil
	s.unread = without(s.unread, r)
}

// tellLocked hands tokens to who pulls.
func (r *request) tellLocked(tokens ...lm.Token) {
	r.buf = append(r.buf, tokens...)
	r.full = len(r.buf) >= r.s.o.Ahead
	r.notifyLocked()
}

func (r *request) notifyLocked() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// endLocked ends a request: by a finish, or by an error.
func (s *Server) endLocked(r *request, f lm.Finish, err error) {
	if r.ended {
		return
	}
	r.ended, r.finish, r.err = true, f, err
	now := time.Now()
	switch {
	case r.begun.IsZero():
		r.counted.Queued = now.Sub(r.accepted)
	case r.firstToken.IsZero():
		r.counted.Prefill = now.Sub(r.begun)
	default:
		r.counted.Decode = now.Sub(r.firstToken)
	}
	switch {
	case err != nil:
		s.totals.Failed++
	case f == lm.Cancelled:
		s.totals.Cancelled++
	default:
		s.totals.Finished++
	}
	switch r.state {
	case waiting:
		s.leaveLineLocked(r)
		r.turn.leave()
		s.goneLocked(r)
	case returning:
		r.turn.leave()
		s.goneLocked(r)
	case parked:
		s.parked = without(s.parked, r)
		s.goneLocked(r)
	case running:
		s.wakeLocked() // its pages are the runner's to free
	}
	if r.detach != nil {
		r.detach()
	}
	r.notifyLocked()
}

// firstOfMost is the first in a list of those of the user who has the most there, of the
// peer that has the most.
func firstOfMost(all []*request) (out *request) {
	peer, user := map[string]int{}, map[lm.Asker]int{}
	for _, r := range all {
		peer[r.who.Peer]++
		user[r.who]++
	}
	for _, r := range all {
		if out == nil || peer[r.who.Peer] > peer[out.who.Peer] || peer[r.who.Peer] == peer[out.who.Peer] && user[r.who] > user[out.who] {
			out = r
		}
	}
	return out
}

func without(all []*request, r *request) []*request {
	return slices.DeleteFunc(all, func(x *request) bool { return x == r })
}

// leaveLineLocked: r has begun, or ended before. Its place is another's.
func (s *Server) leaveLineLocked(r *request) { s.line.Give(1, r.who.Peer, r.who.User) }

// goneLocked: r holds nothing any more but what its client may still read. Of those
// answers there are as many as may wait: then one of who has the most is dropped.
func (s *Server) goneLocked(r *request) {
	r.state = gone
	r.turn.gone()
	r.tokens, r.chooser, r.sampling, r.text = nil, nil, sample.Params{}, answerText{}
	close(r.released)
	if len(r.buf) > 0 {
		s.unread = append(s.unread, r)
	}
	if len(s.unread) > s.o.Waiting {
		old := firstOfMost(s.unread)
		s.forgetLocked(old)
		old.finish, old.err = lm.Unfinished, errUnpulled
		old.notifyLocked()
	}
	s.quietLocked()
}

// pulledLocked: r has room for more.
func (s *Server) pulledLocked(r *request) {
	if r.state == parked {
		s.parked = without(s.parked, r)
		s.returnLocked(r)
	}
	s.wakeLocked()
}
