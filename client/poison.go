package client

import (
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// A trap poisons its session, and so does an IOMMU fault: nothing that is queued
// later runs. The driver says so of each command; once this process has learnt of
// it, from a completion or a fence, commands that would do work are refused here at
// once.

// noticePoison looks at how work of the session has ended.
func (s *Session) noticePoison(how outcome.Outcome) {
	var e *gpuerr.Error
	switch how.Cause {
	case outcome.TrapCause, outcome.IOMMUFault:
		e = gpuerr.New(gpuerr.Poisoned, "work of this session failed (%v), so nothing more runs in it; read what is needed, close it and open another", how)
	case outcome.Poisoned:
		e = gpuerr.New(gpuerr.Poisoned, "earlier work of this session failed, so nothing more runs in it; Describe tells how; close it and open another")
	default:
		return
	}
	s.poisoned.CompareAndSwap(nil, e)
}

// unpoisoned refuses work in a session that is known to be poisoned.
func (s *Session) unpoisoned() error {
	if e := s.poisoned.Load(); e != nil {
		return e
	}
	return nil
}
