package gpu

import "time"

// A machine may stand still: a virtual machine is paused or moved, its host has no processor
// for it, a process is stopped and goes on. What ran then stood still as well, or has ended
// and nobody could see it. A deadline that passed meanwhile says nothing about the work, and
// who is told that it hung is told what is not true. So when runDevice wakes much later than
// it was to, what it missed counts for no deadline.
//
// Work on a device that went on, and hangs, is found so much later; maxStills times at most,
// so that nobody has it for ever who can keep processors busy.

const (
	// standstill is what a machine that is merely busy hardly makes somebody wake too late by.
	standstill = 100 * time.Millisecond
	maxStills  = 8
)

// sleepsLocked notes that runDevice looks again so much later, at the latest.
//
// +checklocks:e.mu
func (e *engine) sleepsLocked(next time.Duration) { e.looksAt = time.Now().Add(next) }

// wokeLocked puts off what is watched by what runDevice woke too late by, if the machine stood
// still.
//
// +checklocks:e.mu
func (e *engine) wokeLocked(now time.Time) {
	late := now.Sub(e.looksAt)
	if e.looksAt.IsZero() || late < standstill || e.stills == maxStills {
		return
	}
	e.looksAt = time.Time{}
	e.stills++
	putOff(&e.headSince, late, now)
	putOff(&e.progressAt, late, now)
	if j := e.oldest; j != nil {
		putOff(&j.stoppedAt, late, now)
	}
}

// putOff makes t so much later, but not later than now: what began while the machine stood
// still began at its end.
func putOff(t *time.Time, late time.Duration, now time.Time) {
	if *t = t.Add(late); t.After(now) {
		*t = now
	}
}
