package server

import (
	"slices"
	"time"

	"capgpu/model/lm"
	"capgpu/model/sample"
)

// Pages: which request has them, which gets them, and which gives them up.

// reapLocked frees the resources of ended requests.
func (s *Server) reapLocked() {
	for i := 0; i < len(s.requests.running); {
		if r := s.requests.running[i]; r.out.ended {
			s.freeLocked(r)
			s.goneLocked(r)
		} else {
			i++
		}
	}
}

// freeLocked removes r from the running requests.
func (s *Server) freeLocked(r *request) {
	r.gen.seq.Close()
	s.dropLocked(r)
	s.requests.running = without(s.requests.running, r)
}

// dropLocked forgets r's place; its sequence is closed, or gone.
func (s *Server) dropLocked(r *request) {
	r.turn.give()
	r.gen.seq, r.gen.fed = nil, 0
}

// admitLocked gives places to requests in the order of their turns, as long as
// there is room. Nobody overtakes: a request that needs much room is not passed by
// those that need little.
func (s *Server) admitLocked() {
	for {
		next := s.requests.shares.next()
		if next == nil {
			return
		}

		r := next.item
		if !s.hasRoomLocked(r) {
			v := s.youngestLocked(func(r *request) bool { return r.out.full })
			if v == nil {
				v = s.overlongLocked(r)
			}
			if v == nil && len(s.requests.running) == 0 { // everything is free, and not enough
				s.endLocked(r, lm.Unfinished, noRoom(r.want.limit-1, s.size.positions()))
				continue
			}
			if v == nil {
				return
			}
			s.preemptLocked(v)
			continue
		}

		if err := s.beginLocked(r); err != nil {
			if len(s.requests.running) > 0 {
				return // room will come
			}
			s.endLocked(r, lm.Unfinished, err)
		}
	}
}

// turnAfter is the time that a request waits before another with many places must
// give one up to it.
const turnAfter = time.Second

// overlongLocked returns the request that gives its place to r, which has waited
// long: the youngest of the user with the most places, of the peer with the most,
// if that peer keeps more places than r's peer has. Among users of r's own peer the
// same rule holds. nil: none.
func (s *Server) overlongLocked(r *request) *request {
	if r.state != waiting || time.Since(r.accepted) < turnAfter {
		return nil
	}
	places := func(u use) int { return u.places }
	if v := s.mostLocked(places, func(*request) bool { return true }); v != nil && v.turn.peer().use.places > r.turn.peer().use.places+1 {
		return v
	}
	v := s.mostLocked(places, func(x *request) bool { return x.turn.peer() == r.turn.peer() })
	if v != nil && v.turn.above.use.places > r.turn.above.use.places+1 {
		return v
	}
	return nil
}

// mostLocked returns, of the running requests that suit, the youngest of the
// largest user of the largest peer, by uses; nil: none suits.
func (s *Server) mostLocked(uses func(use) int, suits func(*request) bool) (v *request) {
	for _, x := range s.requests.running {
		if x.out.ended || !suits(x) {
			continue
		}
		if v != nil {
			peer, than := uses(x.turn.peer().use), uses(v.turn.peer().use)
			if peer < than || peer == than && uses(x.turn.above.use) < uses(v.turn.above.use) {
				continue
			}
		}
		v = x
	}
	return v
}

// hasRoomLocked reports whether there are pages for r's tokens, one more for its
// growth, and one for each running request that grows as well.
func (s *Server) hasRoomLocked(r *request) bool {
	if len(s.requests.running) >= s.size.sequences {
		return false
	}
	need := s.size.pagesOf(len(r.gen.tokens))
	if r.want.embed == nil {
		need = min(need+1, s.size.pagesOf(r.want.limit-1))
	}
	for _, x := range s.requests.running {
		if x.want.embed == nil && !x.out.full {
			need++
		}
	}
	return need <= s.size.pages-s.requests.shares.all.use.pages
}

// beginLocked gives r a sequence and the pages for its tokens.
func (s *Server) beginLocked(r *request) error {
	if r.gen.chooser == nil && r.want.embed == nil {
		var err error
		if r.gen.chooser, err = sample.New(r.want.sampling, s.info.Vocab); err != nil {
			return err
		}
		r.gen.chooser.Accept(r.gen.tokens...)
	}

	q, err := s.live.newSequence()
	if err != nil {
		return err
	}
	if err := q.Reserve(len(r.gen.tokens)); err != nil {
		q.Close()
		return err
	}

	if r.state == waiting {
		s.leaveLineLocked(r)
		r.begun = time.Now()
		r.out.counted.Queued = r.begun.Sub(r.accepted)
		s.status.totals.PromptTokens += uint64(r.want.prompt)
	}

	r.state, r.gen.seq, r.gen.fed = running, q, 0
	r.turn.take()
	r.turn.uses(use{pages: s.size.pagesOf(len(r.gen.tokens))})
	i := slices.IndexFunc(s.requests.running, func(x *request) bool { return x.turn.number > r.turn.number })
	if i < 0 {
		i = len(s.requests.running)
	}

	s.requests.running = slices.Insert(s.requests.running, i, r) // the oldest first
	return nil
}

// youngestLocked returns the youngest running request that suits; nil: none does.
func (s *Server) youngestLocked(suits func(r *request) bool) *request {
	for _, r := range slices.Backward(s.requests.running) {
		if !r.out.ended && suits(r) {
			return r
		}
	}
	return nil
}

// preemptLocked takes the pages of r. r is computed again when there is room and,
// if nobody pulled its answer, when somebody does.
func (s *Server) preemptLocked(r *request) {
	s.freeLocked(r)
	if !r.out.full {
		s.returnLocked(r)
		return
	}
	s.parkLocked(r)
	if len(s.requests.parked) > s.o.Waiting {
		s.endLocked(firstOfMost(s.requests.parked), lm.Unfinished, errUnpulled)
	}
}

// parkLocked puts r among the requests that nobody pulls.
func (s *Server) parkLocked(r *request) {
	r.state = parked
	r.gen.chooser.Rest()
	s.requests.parked = append(s.requests.parked, r)
}

// returnLocked puts r among the requests that wait for room again.
func (s *Server) returnLocked(r *request) {
	r.state = returning
	r.turn.wait()
}

// growLocked gives r pages for this many positions, and reports whether it has
// them. It takes missing pages from requests that nobody pulls, or else from the
// largest user of the peer with the most pages; that may be r itself. The oldest
// never gives, so that the work always finishes.
func (s *Server) growLocked(r *request, positions int) bool {
	need := s.size.pagesOf(positions)
	for r.turn.use.pages < need {
		if more := need - r.turn.use.pages; s.requests.shares.all.use.pages+more <= s.size.pages {
			err := r.gen.seq.Reserve(positions)
			if err == nil {
				r.turn.uses(use{pages: more})
				return true
			}
			if len(s.requests.running) == 1 { // the books are wrong: no other request has the missing pages
				s.endLocked(r, lm.Unfinished, err)
				return false
			}
		}

		v := s.youngestLocked(func(x *request) bool { return x.out.full && x != r })
		if v == nil {
			oldest := s.requests.running[slices.IndexFunc(s.requests.running, func(x *request) bool { return !x.out.ended })]
			v = s.mostLocked(func(u use) int { return u.pages }, func(x *request) bool { return x != oldest })
		}
		if v == nil { // the others have ended, and are about to give theirs
			v = r
		}

		s.preemptLocked(v)
		if v == r {
			return false
		}
	}

	return true
}
