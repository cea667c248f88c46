package client

import (
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// A trap poisons its session: nothing that is queued later runs. The driver says
// so of each command; once this process has learnt of the trap, from a completion
// or a fence, commands that would do work are refused here at once.

// noticeTrap looks at how work of the session has ended.
func (s *Session) noticeTrap(how outcome.Outcome) {
	if how.Cause != outcome.TrapCause && how.Cause != outcome.Poisoned || s.poisoned.Load() != nil {
		return
	}
	e := gpuerr.New(gpuerr.Poisoned, "a program of this session trapped, so nothing more runs in it; Describe tells where; close it and open another")
	if how.Cause == outcome.TrapCause {
		e = gpuerr.New(gpuerr.Poisoned, "a program of this session failed (%v), so nothing more runs in it; read what is needed, close it and open another", how)
	}
	s.poisoned.CompareAndSwap(nil, e)
}

// unpoisoned refuses work in a session of which a trap is known.
func (s *Session) unpoisoned() error {
	if e := s.poisoned.Load(); e != nil {
		return e
	}
	return nil
}
