package engine

import (
	"fmt"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program/instrument"
)

// lieError says that an engine's answer cannot be: it is killed, and none of it is believed.
type lieError struct{ what string }

func (e *lieError) Error() string { return "the engine lies: " + e.what }

func lie(format string, args ...any) error { return &lieError{fmt.Sprintf(format, args...)} }

// answer takes an engine's word. An error is the engine's end.
func (b *Backend) answer(p *proc, a *wire.Answer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.dead {
		return nil
	}
	if a.Lost {
		return fmt.Errorf("the engine has lost the device: %.200q", a.Text)
	}
	if a.Kind.Runs() {
		return b.ranLocked(p, a)
	}

	c := p.calls[a.Seq]
	if c == nil || c.kind != a.Kind {
		return lie("an answer to nothing, %v %d", a.Kind, a.Seq)
	}
	delete(p.calls, a.Seq)
	switch {
	case c.answer != nil:
		c.answer <- a
	case a.Code != gpuerr.None:
		return fmt.Errorf("the engine failed an order, %v: %.200q", a.Kind, a.Text)
	}
	return nil
}

// ranLocked ends the oldest run. b.mu is released while the core is told.
//
// +checklocks:b.mu
func (b *Backend) ranLocked(p *proc, a *wire.Answer) error {
	if len(p.sent) == 0 || p.sent[0].seq != a.Seq || (a.Kind == wire.Run) != (p.sent[0].rec != nil) {
		return lie("a result of no run, %v %d", a.Kind, a.Seq)
	}
	j := p.sent[0]
	how, begun, err := b.judgeLocked(p, j, a)
	if err != nil {
		return err
	}

	p.sent = p.sent[1:]
	if p.stopping == j {
		p.stopping = nil
	}
	p.stopLocked()  // the next may be one that was cancelled
	if begun == 0 { // it was skipped
		if j.scrub != nil || b.jobs[j.id] == j {
			b.requeueLocked(j)
		}
		b.settleLocked()
		b.advanceLocked()
		return nil
	}

	j.proc = nil
	if j.scrub != nil {
		b.scrubbedLocked(j, how.Kind == outcome.OK)
		if how.Kind != outcome.OK {
			return fmt.Errorf("memory was not zeroed: %v", how)
		}
		b.settleLocked()
		b.advanceLocked()
		return nil
	}

	c := backend.Completion{ID: j.id, Outcome: how}
	if a.Result != nil {
		if c.DeviceTime = a.Result.DeviceTime; how.Kind == outcome.OK {
			b.learnLocked(j, c.DeviceTime)
		}
	}
	if j.work.Op == backend.OpList {
		c.Begun = begun
	}
	if b.endLocked(j, how, true) {
		b.advanceLocked() // what is of the same context
		b.tellLocked(c)
		return nil
	}
	b.settleLocked() // it was dropped
	b.advanceLocked()
	return nil
}

// judgeLocked says how a job ended, and how many of its entries began. 0: it was skipped.
//
// +checklocks:b.mu
func (b *Backend) judgeLocked(p *proc, j *job, a *wire.Answer) (how outcome.Outcome, begun uint32, err error) {
	r := a.Result
	if a.Code != gpuerr.None {
		b.log.Warn("an engine could not run a job", "group", p.group, "code", a.Code, "text", a.Text)
		if p.skipping {
			return how, 0, lie("run %d failed behind one that ended early", a.Seq)
		}
		p.skipping = true
		return deviceError, 1, nil
	}

	entries := uint32(len(j.plan.entries))
	switch {
	case r.Skipped != p.skipping:
		return how, 0, lie("run %d: skipped is %v", a.Seq, r.Skipped)
	case r.Skipped:
		return how, 0, nil
	case r.Begun > entries || !r.Early && r.Begun != entries:
		return how, 0, lie("run %d of %d entries: %d began", a.Seq, entries, r.Begun)
	case !r.Early && j.plan.ends.Kind != outcome.Pending:
		return j.plan.ends, entries + 1, nil
	case !r.Early:
		return outcome.Success, entries, nil
	}

	p.skipping = true
	at := r.Begun - 1
	s := &j.plan.steps[at]
	if s.variant == nil {
		return how, 0, lie("run %d: a copy or fill ended early", a.Seq)
	}
	report, err := s.variant.code.instrumented.Decode(r.Slot[:], j.plan.entries[at].Grid, s.lengths)
	if err != nil {
		return how, 0, lie("run %d: %v", a.Seq, err)
	}
	switch report.End {
	case instrument.Trapped:
		return outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: report.Trap}, r.Begun, nil
	case instrument.Stopped:
		if !p.stopped {
			return how, 0, lie("run %d was stopped, and nobody told it to", a.Seq)
		}
		return cancelled, r.Begun, nil
	case instrument.TooLong:
		return deviceError, r.Begun, nil
	}
	return how, 0, lie("run %d ended early without a word", a.Seq)
}
