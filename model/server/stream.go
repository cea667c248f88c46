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
	case r.out.pulling <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}

	defer func() { <-r.out.pulling }()
	for {
		if n, over, err := r.take(out); n > 0 || over || len(out) == 0 {
			return n, err
		}
		select {
		case <-r.out.more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// take is Next for tokens that are already there.
func (r *request) take(out []lm.Token) (n int, over bool, err error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	n = copy(out, r.out.buf)
	r.out.buf = slices.Delete(r.out.buf, 0, n) // zeroes the end of the slice, so that alternatives are freed
	if r.out.full && len(r.out.buf) <= r.s.o.Ahead/2 {
		r.out.full = false
		r.s.pulledLocked(r)
	}
	if r.state == gone && len(r.out.buf) == 0 {
		r.s.forgetLocked(r)
	}

	switch {
	case n > 0 || !r.out.ended:
		return n, false, nil
	case r.out.err != nil:
		return 0, true, r.out.err
	}

	return 0, true, io.EOF
}

// Finish implements lm.Stream.
func (r *request) Finish() lm.Finish {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.out.finish
}

// Usage implements lm.Stream.
func (r *request) Usage() lm.Usage {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.out.counted
}

// Close implements lm.Stream. It waits for the current pass.
func (r *request) Close() error {
	r.cancel()
	<-r.out.released
	return nil
}

// cancel ends a request that has not ended. It gives its pages back soon after.
func (r *request) cancel() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.endLocked(r, lm.Cancelled, nil)
	r.s.forgetLocked(r)
}

// forgetLocked drops what r has delivered: nobody reads it, or all of it was read.
func (s *Server) forgetLocked(r *request) {
	clear(r.out.buf)
	r.out.buf = nil
	s.requests.unread = without(s.requests.unread, r)
}

// deliverLocked hands tokens to the puller.
func (r *request) deliverLocked(tokens ...lm.Token) {
	r.out.buf = append(r.out.buf, tokens...)
	r.out.full = len(r.out.buf) >= r.s.o.Ahead
	r.notifyLocked()
}

func (r *request) notifyLocked() {
	select {
	case r.out.more <- struct{}{}:
	default:
	}
}

// endLocked ends a request, with a finish or with an error.
func (s *Server) endLocked(r *request, f lm.Finish, err error) {
	if r.out.ended {
		return
	}

	r.out.ended, r.out.finish, r.out.err = true, f, err
	now := time.Now()
	switch {
	case r.begun.IsZero():
		r.out.counted.Queued = now.Sub(r.accepted)
	case r.firstToken.IsZero():
		r.out.counted.Prefill = now.Sub(r.begun)
	default:
		r.out.counted.Decode = now.Sub(r.firstToken)
	}

	switch {
	case err != nil:
		s.status.totals.Failed++
	case f == lm.Cancelled:
		s.status.totals.Cancelled++
	default:
		s.status.totals.Finished++
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
		s.requests.parked = without(s.requests.parked, r)
		s.goneLocked(r)
	case running:
		s.wakeLocked() // the runner frees its pages
	}

	if r.out.detach != nil {
		r.out.detach()
	}

	r.notifyLocked()
}

// firstOfMost returns the first request of the largest user: of the peer with the
// most requests in the list, and there of the user with the most.
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

// leaveLineLocked frees r's place in the line: r has begun, or ended before it
// could.
func (s *Server) leaveLineLocked(r *request) { s.line.Give(1, r.who.Peer, r.who.User) }

// goneLocked is called when r holds only what its client may still read. The number
// of such answers is bounded by the number that may wait; above it, one answer of
// the largest holder is dropped.
func (s *Server) goneLocked(r *request) {
	r.state = gone
	r.turn.gone()
	r.gen.tokens, r.gen.chooser, r.want.sampling, r.gen.text = nil, nil, sample.Params{}, answerText{}
	close(r.out.released)
	if len(r.out.buf) > 0 {
		s.requests.unread = append(s.requests.unread, r)
	}
	if len(s.requests.unread) > s.o.Waiting {
		old := firstOfMost(s.requests.unread)
		s.forgetLocked(old)
		old.out.finish, old.out.err = lm.Unfinished, errUnpulled
		old.notifyLocked()
	}
	s.quietLocked()
}

// pulledLocked is called when r has room for more tokens.
func (s *Server) pulledLocked(r *request) {
	if r.state == parked {
		s.requests.parked = without(s.requests.parked, r)
		s.returnLocked(r)
	}
	s.wakeLocked()
}
