package ring

import "runtime/debug"

// Published is how many entries the client has published that were not taken yet,
// with or without room for their completions. It is 0 once the ring has ended, or
// when the client has broken the rules, which the next TakeMany says.
func (s *Server) Published() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if s.err != nil || s.gone.Load() || s.lookAtTailLocked() != nil {
		return 0
	}
	return int(s.seenTail - s.taken)
}

// Marks are positions: up to where entries were taken from the ring, up to where the
// client has published some, and up to where it has collected completions. The last two
// are read one after the other: nothing follows from their order. The client may write
// anything there: it is bounded, and else its own loss. Once the ring has ended all three
// are how far it came.
func (s *Server) Marks() (taken, published, collected uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	taken, published, collected = s.taken, s.taken, s.seenHead
	if s.err != nil || s.gone.Load() {
		return taken, published, collected
	}
	if tail := s.view.sqTail.Load(); tail-s.taken <= uint64(s.Entries) {
		published = tail
	}
	if head := s.view.cqHead.Load(); head-s.seenHead <= uint64(s.completions) {
		collected = head
	}
	return taken, published, collected
}

// Ready says whether TakeMany has anything to say: an entry, or why the ring has ended. It
// is a hint, of which nothing is checked, and the cheapest look that there is: it never
// waits, also while another call of the ring goes on, and then says true.
//
// +checklocksignore: TryLock is not understood
func (s *Server) Ready() (ready bool) {
	if !s.mu.TryLock() {
		return true
	}
	defer s.mu.Unlock()
	if s.err != nil || s.gone.Load() {
		return true
	}
	ready = true // by a fault, too: TakeMany says so
	defer s.guard(debug.SetPanicOnFault(true), nil)
	// The tail may be back where entries were taken up to, and a later one have been seen.
	return (s.seenTail != s.taken || s.view.sqTail.Load() != s.taken) &&
		(s.taken-s.seenHead < uint64(s.completions) || s.view.cqHead.Load() != s.seenHead)
}

// lookLocked says whether TakeMany has something (awake), or what to wait for. It
// reads a word of the client's only when what it knows is used up.
//
// +checklocks:s.mu
func (s *Server) lookLocked() (want uint32, err error) {
	if s.err == nil && s.gone.Load() {
		s.err = errGone
	}
	if s.err != nil {
		return awake, s.err
	}
	if s.taken == s.seenTail {
		if err := s.lookAtTailLocked(); err != nil {
			return awake, err
		}
		if s.taken == s.seenTail {
			return waitEntries, nil
		}
	}
	if s.taken-s.seenHead >= uint64(s.completions) {
		if err := s.lookAtHeadLocked(); err != nil {
			return awake, err
		}
		if s.taken-s.seenHead >= uint64(s.completions) {
			return waitCompletions, nil
		}
	}
	return awake, nil
}

// lookAtTailLocked learns how many entries the client has published.
//
// +checklocks:s.mu
func (s *Server) lookAtTailLocked() error {
	tail := s.view.sqTail.Load()
	// One that went back is far ahead in unsigned arithmetic.
	if tail-s.seenTail > uint64(s.Entries) || tail-s.taken > uint64(s.Entries) {
		return s.failLocked(errTail)
	}
	s.seenTail = tail
	return nil
}

// lookAtHeadLocked learns how many completions the client has taken.
//
// +checklocks:s.mu
func (s *Server) lookAtHeadLocked() error {
	head := s.view.cqHead.Load()
	if head-s.seenHead > uint64(s.completions) || head > s.published {
		return s.failLocked(errHead)
	}
	s.seenHead = head
	return nil
}
