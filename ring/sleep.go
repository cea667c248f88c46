package ring

import (
	"context"
	"errors"
	"runtime/debug"

	"capgpu/gpuerr"
)

// A goroutine that serves many rings sleeps on the doorbells of all of them at once, with
// one poll(2):
//
//	take from every ring ──► nothing left ──► Arm each ──► none is ready ──► poll ─┐
//	         ▲                                  │ ready                            │ readable,
//	         └───────────── Disarm ◄────────────┴──────── Drain of those ◄─────────┘ or hung up
//
// A ring that nothing came from may stay armed meanwhile: its client wakes once, the next
// Arm asks again.

// Doorbell is the descriptor that is readable when the client wakes the driver, and hung up
// when the client has closed its end. It is the server's, and good until Close; -1 then, and
// of a ring within one process.
func (s *Server) Doorbell() int { return s.work.FD() }

// OnDoorbell has f called each time that the client wakes the driver, or closes its end, of
// a ring within one process (NewOver), the doorbell of which is no descriptor; nil: no more.
// Its wake implements OnWake.
func (s *Server) OnDoorbell(f func()) {
	if w, ok := s.work.(interface{ OnWake(func()) }); ok {
		w.OnWake(f)
	}
}

// Drain takes what is in the doorbell. It is called whenever that was readable or hung up,
// before the next Arm: a byte that comes later belongs to a question that is still open. It
// answers gpuerr.Disconnected when the client has closed its end: the doorbell tells nothing
// any more, and what was published before is still there to be taken.
func (s *Server) Drain() error {
	err := s.work.Take()
	if errors.Is(err, gpuerr.Disconnected) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hungUp = true
	}
	return err
}

// Arm asks the client for a wake, unless there is something to take: the flag is set before
// the queue is looked at for the last time. ready means that nothing was asked, and that
// TakeMany has something. An error is why the ring has ended, or gpuerr.Disconnected: there
// is nothing to take, and nobody left to ask.
func (s *Server) Arm() (ready bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	want, err := s.lookLocked()
	if err == nil && want != awake {
		s.work.Drain()
	}
	for err == nil && want != awake {
		armed := want
		s.view.sqWait.Swap(armed)
		if want, err = s.lookLocked(); err == nil && want == armed {
			if s.hungUp {
				return false, errClientGone
			}
			return false, nil
		}
	}
	if s.err == nil { // else the mapping may be gone
		s.view.sqWait.Store(awake)
	}
	return err == nil, err
}

// Disarm takes the question of Arm back: a driver that is awake needs no wake. It returns why
// the ring has ended, if it has, or gpuerr.Disconnected.
func (s *Server) Disarm() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	switch {
	case s.err != nil:
		return s.err
	case s.gone.Load():
		return errGone
	}
	s.view.sqWait.Store(awake)
	if s.hungUp {
		return errClientGone
	}
	return nil
}

// WaitWork sleeps until TakeMany has something, for a goroutine that serves one ring. It
// returns ctx's error when ctx ends first, what TakeMany would when the ring has ended, and
// gpuerr.Disconnected when there is nothing to take and the client has closed its end of the
// pipe.
func (s *Server) WaitWork(ctx context.Context) error {
	for {
		ready, err := s.Arm()
		if ready || err != nil {
			return err
		}
		err = s.work.Wait(ctx)
		if ended := s.Disarm(); ended != nil {
			return ended
		}
		if err != nil {
			return err
		}
	}
}
