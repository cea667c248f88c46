package ring

import (
	"runtime/debug"
)

// Servant serves what Serve takes. It is called with the locks of the server held: it calls
// nothing of it.
type Servant interface {
	// Served runs entries of which all is known (Batch.Kept), named by their kept slots, if all of
	// them end ok, and returns the device time, in nanoseconds, of each. Fewer mean that the rest,
	// or that nothing of it ended so, and is the caller's of Serve to deal with, in the batch's
	// Entries.
	Served(named []uint8) (nanos []uint64)
	// Told is called when the client was shown the completions of what Served has run, and
	// reports whether to look for more.
	Told() (more bool)
	// Goes is asked between two looks. False ends Serve.
	Goes() bool
}

// Serve is SpinTake and PublishOK again and again, for who serves one batch after the other
// in one breath: both locks are taken once, which is most of what a single entry costs, and of
// what is known (Batch.Kept) a byte is handed on. It returns when there was nothing for so many
// looks, when it is told to by the servant, and when something is left to do: n entries of the
// batch, which the servant has had and not served, or that are not known.
//
// As long as it goes on, whoever else wants to look at this ring waits.
func (s *Server) Serve(b *Batch, most, spins int, by Servant) (n int, err error) {
	b.Entries = b.Entries[:0]
	wake := false
	defer func() {
		if wake {
			s.done.Signal() // with no lock held; fails only when closed, and then nobody waits
		}
	}()
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	s.doneMu.Lock()
	defer s.doneMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	for left := spins; ; left-- {
		want, err := s.lookServingLocked()
		if err != nil {
			return 0, err
		}
		if want == awake {
			named := s.nameLocked(b, most)
			if len(named) == 0 {
				return s.copyOutLocked(b, most)
			}
			nanos := by.Served(named)
			if len(nanos) < len(named) {
				b.spell(named)
				return len(named), nil
			}
			s.completeOKLocked(nanos)
			wake = s.publishLocked() && s.clientAsksLocked()
			if !by.Told() || wake {
				return 0, nil
			}
			left = spins
			continue
		}
		if left <= 0 || s.ending.Load() || !by.Goes() {
			return 0, nil
		}
		pause()
	}
}

// lookServingLocked is lookLocked of one that holds the other lock, too.
//
// +checklocks:s.takeMu
// +checklocks:s.doneMu
func (s *Server) lookServingLocked() (want uint32, err error) {
	if s.err != nil || s.gone.Load() {
		return s.lookLocked() // which reads no position then
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
		if err := s.headLocked(s.view.cqHead.Load(), s.published); err != nil {
			return awake, err
		}
		if s.taken-s.seenHead >= uint64(s.completions) {
			return waitCompletions, nil
		}
	}
	return awake, nil
}
