package server

import (
	"slices"
	"time"

	"capgpu/model/lm"
	"capgpu/model/sample"
)

// Who has pages, who gets them, and who gives them up.

// reapLocked frees what ended requests hold.
func (s *Server) reapLocked() {
	for i := 0; i < len(s.running); {
		if r := s.running[i]; r.ended {
			s.freeLocked(r)
			s.goneLocked(r)
		} else {
			i++
		}
	}
}

// freeLocked takes r out of those that run.
func (s *Server) freeLocked(r *request) {
	r.seq.Close()
	s.dropLocked(r)
	s.running = without(s.running, r)
}

// dropLocked: r has no place any more, and its sequence is closed, or gone.
func (s *Server) dropLocked(r *request) {
	r.turn.give()
	r.seq, r.fed = nil, 0
}

// admitLocked gives places to those whose turn it is, as long as there is room. Nobody
// overtakes: who waits for much room is not passed by those who need little.
func (s *Server) admitLocked() {
	for {
		next := s.shares.next()
		if next == nil {
			return
		}
		r := next.item
		if !s.hasRoomLocked(r) {
			v := s.youngestLocked(func(r *request) bool { return r.full })
			if v == nil {
				v = s.overlongLocked(r)
			}
			if v == nil && len(s.running) == 0 { // all there is, is free, and is not enough
				s.endLocked(r, lm.Unfinished, noRoom(r.limit-1, s.size.positions()))
				continue
			}
			if v == nil {
				return
			}
			s.preemptLocked(v)
			continue
		}
		if err := s.beginLocked(r); err != nil {
			if len(s.running) > 0 {
				return // room will come
			}
			s.endLocked(r, lm.Unfinished, err)
		}
	}
}

// turnAfter is how long a request waits before another that has many places has to give
// one up to it.
const turnAfter = time.Second

// overlongLocked is who gives its place to r, which has waited long: the youngest of the
// user with the most places, of the peer with the most, if that keeps more than r's has; or
// of another user of r's own peer, likewise. nil: nobody.
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

// mostLocked is, of those that run and suit, the youngest of the user that uses the most, of
// the peer that does; nil: none suits.
func (s *Server) mostLocked(uses func(use) int, suits func(*request) bool) (v *request) {
	for _, x := range s.running {
		if x.ended || !suits(x) {
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

// hasRoomLocked: pages for what r has, one more for what comes, and one for each that runs
// and grows as well.
func (s *Server) hasRoomLocked(r *request) bool {
	if len(s.running) >= s.size.sequences {
		return false
	}
	need := s.size.pagesOf(len(r.tokens))
	if r.embed == nil {
		need = min(need+1, s.size.pagesOf(r.limit-1))
	}
	for _, x := range s.running {
		if x.embed == nil && !x.full {
			need++
		}
	}
	return need <= s.size.pages-s.shares.all.use.pages
}

// beginLocked gives r a sequence and the pages for its tokens.
func (s *Server) beginLocked(r *request) error {
	if r.chooser == nil && r.embed == nil {
		var err error
		if r.chooser, err = sample.New(r.sampling, s.info.Vocab); err != nil {
			return err
		}
		r.chooser.Accept(r.tokens...)
	}
	q, err := s.live.newSequence()
	if err != nil {
		return err
	}
	if err := q.Reserve(len(r.tokens)); err != nil {
		q.Close()
		return err
	}
	if r.state == waiting {
		s.leaveLineLocked(r)
		r.begun = time.Now()
		r.counted.Queued = r.begun.Sub(r.accepted)
		s.totals.PromptTokens += uint64(r.prompt)
	}
	r.state, r.seq, r.fed = running, q, 0
	r.turn.take()
	r.turn.uses(use{pages: s.size.pagesOf(len(r.tokens))})
	i := slices.IndexFunc(s.running, func(x *request) bool { return x.turn.number > r.turn.number })
	if i < 0 {
		i = len(s.running)
	}
	s.running = slices.Insert(s.running, i, r) // the oldest first
	return nil
}

// youngestLocked is the youngest that runs of those that suit; nil: none does.
func (s *Server) youngestLocked(suits func(r *request) bool) *request {
	for _, r := range slices.Backward(s.running) {
		if !r.ended && suits(r) {
			return r
		}
	}
	return nil
}

// preemptLocked takes the pages of r. It is computed again when there is room, or, where
// nobody pulls its answer, when somebody does and there is.
func (s *Server) preemptLocked(r *request) {
	s.freeLocked(r)
	if !r.full {
		s.returnLocked(r)
		return
	}
	s.parkLocked(r)
	if len(s.parked) > s.o.Waiting {
		s.endLocked(firstOfMost(s.parked), lm.Unfinished, errUnpulled)
	}
}

// parkLocked puts r among those that nobody pulls.
func (s *Server) parkLocked(r *request) {
	r.state = parked
	r.chooser.Rest()
	s.parked = append(s.parked, r)
}

// returnLocked puts r among those that wait for room again.
func (s *Server) returnLocked(r *request) {
	r.state = returning
	r.turn.wait()
}

// growLocked makes sure that r has pages for so many positions: from others that nobody
// pulls, or else from the peer that has the most, and there from the user that has; which
// may be r itself. The oldest never gives, so that the work always comes to an end. It says
// whether r has them.
func (s *Server) growLocked(r *request, positions int) bool {
	need := s.size.pagesOf(positions)
	for r.turn.use.pages < need {
		if more := need - r.turn.use.pages; s.shares.all.use.pages+more <= s.size.pages {
			err := r.seq.Reserve(positions)
			if err == nil {
				r.turn.uses(use{pages: more})
				return true
			}
			if len(s.running) == 1 { // the books are wrong, and nobody has what is missing
				s.endLocked(r, lm.Unfinished, err)
				return false
			}
		}
		v := s.youngestLocked(func(x *request) bool { return x.full && x != r })
		if v == nil {
			oldest := s.running[slices.IndexFunc(s.running, func(x *request) bool { return !x.ended })]
			v = s.mostLocked(func(u use) int { return u.pages }, func(x *request) bool { return x != oldest })
		}
		if v == nil { // the others have ended, and are about to give
			v = r
		}
		s.preemptLocked(v)
		if v == r {
			return false
		}
	}
	return true
}
