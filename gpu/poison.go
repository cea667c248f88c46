package gpu

import (
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// A trap poisons the session it happened in, and so does an access that the IOMMU
// refused (fault.go): nobody can say what such work has left in the memory of its
// session, so nothing that was to come after it there runs. The session's objects can
// still be read, asked about and closed. Sessions above, below and beside it have device
// contexts of their own and notice nothing.
//
//	device: job traps ─► Complete ─► poison ─► what waits, or is in the device: cancelled
//	                                   └─────► what comes later: refused, or ends cancelled

// poison is what a session is poisoned by.
type poison struct {
	how outcome.Outcome // failed: the first one
	err *gpuerr.Error
}

var poisonedOutcome = outcome.Outcome{Kind: outcome.Cancelled, Cause: outcome.Poisoned}

// setPoisoned notes what poisoned the session first. Later ones change nothing.
func (s *Session) setPoisoned(how outcome.Outcome) (first bool) {
	return s.poison.Load() == nil && s.poison.CompareAndSwap(nil, &poison{how: how, err: poisonedBy(how)})
}

func poisonedBy(how outcome.Outcome) *gpuerr.Error {
	if how.Cause == outcome.IOMMUFault {
		return gpuerr.New(gpuerr.Poisoned, "work of this session reached for memory that it was not granted (%v); what it wrote may have holes, so nothing more runs in it; read what is needed, close it and open another", how)
	}
	return gpuerr.New(gpuerr.Poisoned, "a program of this session failed (%v), so nothing more runs in it; read what is needed, close it and open another", how)
}

// unpoisoned refuses what makes or queues work in a session that is poisoned.
func (s *Session) unpoisoned() error {
	if p := s.poison.Load(); p != nil {
		return p.err
	}
	return nil
}

// Poisoned is what poisoned the session, failed (trap) or failed (iommuFault);
// pending while nothing has.
func (s *Session) Poisoned() outcome.Outcome {
	if p := s.poison.Load(); p != nil {
		return p.how
	}
	return outcome.Outcome{}
}

// enterToWork is enter for calls that make or queue work.
func (s *Session) enterToWork() error {
	if err := s.enter(); err != nil {
		return err
	}
	if err := s.unpoisoned(); err != nil {
		s.node.Leave()
		return err
	}
	return nil
}
