package ring

import "runtime/debug"

// Many rings that are busy cost a system call of each side for every turn, if each has a
// driver that sleeps. So somebody may watch them instead: look at one after the other,
// while the flags of all are taken back and their clients wake nobody.
//
//	asleep in WaitWork ──Watch──► watched ──Resign──► asleep
//	                                 └──(awake)──Unwatch──► not watched
//
// Watch and Resign are called between two takes, as by the goroutine in WaitWork itself;
// see the package comment.

// Sight is what somebody who watches a ring has seen.
type Sight uint8

const (
	// Nothing: the client has published nothing that was not taken.
	Nothing Sight = iota
	// Entries: there is something for TakeMany.
	Entries
	// Full: the client is to take completions first. Nobody watches for that.
	Full
	// Ended: TakeMany says why.
	Ended
)

// Watch looks at a ring whose driver sleeps in WaitWork, or is about to. From then on its
// client wakes nobody, and the caller looks again, until Resign or Unwatch, unless it sees
// Full or Ended.
func (s *Server) Watch() (see Sight) {
	see = Ended // by a fault
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if see = s.seeLocked(); see == Nothing || see == Entries {
		if !s.watched {
			s.watched = true
			s.view.sqWait.Store(awake)
		}
	}
	return see
}

// seeLocked is lookLocked.
//
// +checklocks:s.takeMu
func (s *Server) seeLocked() Sight {
	switch want, err := s.lookLocked(); {
	case err != nil:
		return Ended
	case want == waitEntries:
		return Nothing
	case want == waitCompletions:
		return Full
	}
	return Entries
}

// Resign ends a Watch: the client wakes again whoever sleeps in WaitWork. Of anything but
// Nothing that one does not learn by itself.
func (s *Server) Resign() (see Sight) {
	see = Ended
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if !s.watched {
		return Nothing // it has asked for its wake itself
	}
	s.watched = false
	if s.err == nil && !s.gone.Load() {
		s.view.sqWait.Swap(waitEntries) // and then looks: see view for why not Store
	}
	if see = s.seeLocked(); see == Entries || see == Full {
		s.view.sqWait.Store(awake)
	}
	return see
}

// Unwatch ends a Watch of a driver that does not sleep any more.
func (s *Server) Unwatch() {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	s.watched = false
}

// Ahead asks the processor for what the next TakeMany needs, if it is as large as the last one,
// and what is told of it, and changes nothing else.
// Somebody who watches many rings calls it a little earlier.
//
// +checklocksignore: TryLock is not understood
func (s *Server) Ahead() {
	if !s.takeMu.TryLock() {
		return
	}
	defer s.takeMu.Unlock()
	if s.err != nil { // the mapping may be gone
		return
	}
	s.view.ahead(s.taken, s.last)
}
