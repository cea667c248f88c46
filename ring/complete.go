package ring

import (
	"runtime/debug"
	"sync/atomic"
)

// CompleteMany writes the completions of the oldest entries that have none, with the user
// data of the entries. Their slots are free because TakeMany took no more than there was
// room for. The client sees them after Flush.
func (s *Server) CompleteMany(cs []Completion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if !s.closed && !s.gone.Load() {
		s.completeLocked(cs)
	}
}

// Flush publishes what was completed, and wakes the client if it asked.
func (s *Server) Flush() { s.Publish(nil) }

// Publish is CompleteMany and then Flush.
func (s *Server) Publish(cs []Completion) {
	if s.publish(cs) {
		s.done.Signal() // with no lock held; fails only when closed, and then nobody waits
	}
}

// publish reports whether the client asked to be woken.
func (s *Server) publish(cs []Completion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if s.closed || s.gone.Load() {
		return false
	}
	s.completeLocked(cs)
	return s.publishLocked() && s.view.cqWait.Load() == waitEntries && s.view.cqWait.CompareAndSwap(waitEntries, awake)
}

// +checklocks:s.mu
func (s *Server) completeLocked(cs []Completion) {
	for i := range cs {
		to := s.view.completion(s.completed)
		w := cs[i].words(lapOf(s.completed, s.completions))
		to[0], to[2], to[3] = w[0], w[2], w[3]
		if s.completed == s.published {
			s.first = w[1]
		} else {
			to[1] = w[1]
		}
		s.completed++
	}
}

// publishLocked reports whether there was anything to publish.
//
// +checklocks:s.mu
func (s *Server) publishLocked() bool {
	if s.published == s.completed {
		return false
	}
	first := s.view.completion(s.published)
	s.published = s.completed
	atomic.SwapUint64(&first[1], s.first) // Swap: see view
	return true
}
