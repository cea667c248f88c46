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
	s.used -= r.pages
	r.seq, r.pages, r.fed = nil, 0, 0
	s.running = without(s.running, r)
}

// admitLocked gives places to those whose turn it is, as long as there is room. Nobody
// overtakes: who waits for much room is not passed by those who need little.
func (s *Server) admitLocked() {
	for {
		r := s.candidateLocked()
		if r == nil {
			return
		}
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

// candidateLocked is who begins next: those that had begun before come first, unless it is
// the turn of a tag that has fewer places than theirs.
func (s *Server) candidateLocked() *request {
	r := s.line.next(s.placesLocked)
	if len(s.returning) == 0 {
		return r
	}
	if back := s.returning[0]; r == nil || s.placesLocked(r.tag) >= s.placesLocked(back.tag) {
		return back
	}
	return r
}

// placesLocked is how many places a tag has.
func (s *Server) placesLocked(tag string) (n int) {
	for _, r := range s.running {
		if r.tag == tag {
			n++
		}
	}
	return n
}

// turnAfter is how long a request waits before a tag that has many places has to give one
// up to it.
const turnAfter = time.Second

// overlongLocked is who gives its place to r, which has waited long: the youngest of the
// tag with the most places, if that keeps more than r's has; nil: nobody.
func (s *Server) overlongLocked(r *request) *request {
	if r.state != waiting || time.Since(r.accepted) < turnAfter {
		return nil
	}
	most := s.placesLocked(r.tag) + 1
	var v *request
	for _, x := range s.running { // the oldest first, so that the youngest of equals stays
		if n := s.placesLocked(x.tag); !x.ended && (n > most || v != nil && x.tag == v.tag) {
			most, v = n, x
		}
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
	return need <= s.size.pages-s.used
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
	if r.state == returning {
		s.returning = s.returning[1:]
	} else {
		s.line.pop(r)
		r.begun = time.Now()
		r.counted.Queued = r.begun.Sub(r.accepted)
		s.totals.PromptTokens += uint64(r.prompt)
	}
	r.state, r.seq, r.fed = running, q, 0
	r.pages = s.size.pagesOf(len(r.tokens))
	s.used += r.pages
	s.running = insert(s.running, r)
	return nil
}

// insert keeps the oldest first.
func insert(all []*request, r *request) []*request {
	i, _ := slices.BinarySearchFunc(all, r.order, func(x *request, order uint64) int {
		if x.order < order {
			return -1
		}
		return 1
	})
	return slices.Insert(all, i, r)
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
		s.endLocked(s.parked[0], lm.Unfinished, errUnpulled)
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
	s.returning = insert(s.returning, r)
}

// growLocked makes sure that r has pages for so many positions: from others that nobody
// pulls, or from the youngest, which may be r itself. It says whether r has them.
func (s *Server) growLocked(r *request, positions int) bool {
	need := s.size.pagesOf(positions)
	for r.pages < need {
		if s.used+need-r.pages <= s.size.pages {
			err := r.seq.Reserve(positions)
			if err == nil {
				s.used += need - r.pages
				r.pages = need
				return true
			}
			if len(s.running) == 1 { // the books are wrong, and nobody has what is missing
				s.endLocked(r, lm.Unfinished, err)
				return false
			}
		}
		v := s.youngestLocked(func(x *request) bool { return x.full && x != r })
		if v == nil {
			v = s.youngestLocked(func(*request) bool { return true })
		}
		s.preemptLocked(v)
		if v == r {
			return false
		}
	}
	return true
}
