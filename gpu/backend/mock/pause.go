package mock

import (
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/program/lane"
)

// pause is that the device is to stand still, or does.
//
//	none ──Pause──► asked ──(all who run a job stand)──► stands
//	  └◄────────────Resume──────────────────────────────────┘
//
// Who runs a part of a job, a member of the crew or the engine itself, looks at attend
// wherever it looks whether it is to stop, and waits there with what it has on its stack
// (goesOn). While all who are inside of the running job stand, nobody touches its spans, nor
// the compiled kernels: then these are for who holds Device.mu, as if the engine had nothing
// to do. A job that is compiled for, or that hangs by the script, is nowhere where it could
// be left, and the device stands at its end. Guarded by Device.mu.
type pause struct {
	asked  bool
	stands bool
	still  func() // whom to tell; nil: it was told
	at     time.Time
	ended  uint64 // pauses that are over
}

// rest is what a job has of a pause.
type rest struct {
	attend   atomic.Uint32 // not 0: the job is to stand still, or to be stopped
	inside   atomic.Int32  // who run it
	standing int32         // and of these, who wait; guarded by Device.mu, as is what follows
	nowhere  bool          // nobody runs it: it waits to be stopped
	stood    time.Duration // in pauses that are over
	end      sync.Cond     // of Device.mu: the pause is over, or the job is to be stopped
}

// clear is for the next job. What waits here is woken by askToStop before.
func (r *rest) clear() {
	r.attend.Store(0)
	r.inside.Store(0)
	r.standing, r.nowhere, r.stood = 0, false, 0
}

// Pause implements backend.Pauser.
func (d *Device) Pause(still func()) {
	d.mu.Lock()
	d.pause.asked, d.pause.still = true, still
	if d.running != nil {
		d.running.rest.attend.Store(1)
	}
	tell := d.standLocked()
	d.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// Resume implements backend.Pauser.
func (d *Device) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.running; s != nil {
		s.rest.stood += d.pause.sinceLocked()
		if s.stop.Load() == stopNone {
			s.rest.attend.Store(0)
		}
		s.rest.standing = 0 // who waits goes on, also if there is another pause before it wakes
		s.rest.end.Broadcast()
	}
	d.pause = pause{ended: d.pause.ended + 1}
	signal(d.work)
}

// sinceLocked is how long the device has stood still.
func (p *pause) sinceLocked() time.Duration {
	if !p.stands {
		return 0
	}
	return time.Since(p.at)
}

// standLocked has the device stand still if it is to and nobody runs anything, and returns
// whom to tell, without the lock.
//
// +checklocks:d.mu
func (d *Device) standLocked() (tell func()) {
	if d.pause.still == nil || d.state != live {
		return nil
	}
	if s := d.running; s != nil && !s.rest.nowhere && (s.rest.standing == 0 || s.rest.standing != s.rest.inside.Load()) {
		return nil
	}
	tell, d.pause.still = d.pause.still, nil
	d.pause.stands, d.pause.at = true, time.Now()
	return tell
}

// goesOn reports whether to go on with the task, which may have to stand still before. It
// is called by those who run it.
func (t *task) goesOn() bool {
	return t.slot.rest.attend.Load() == 0 || t.dev.stand(t.slot)
}

// stand waits for the end of a pause. False means that the job is to be stopped. Between
// two pauses whoever stood gets on by a block of work at least.
func (d *Device) stand(s *slot) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	ended := d.pause.ended
	s.rest.standing++
	if tell := d.standLocked(); tell != nil {
		d.mu.Unlock()
		tell()
		d.mu.Lock()
	}
	for d.pause.asked && d.pause.ended == ended && s.stop.Load() == stopNone {
		s.rest.end.Wait()
	}
	if d.pause.ended == ended { // else Resume has counted
		s.rest.standing--
	}
	return s.stop.Load() == stopNone
}

// leave says that one who ran a part of the task has nothing more to do with it: then the
// others may be all that the device waits for.
func (t *task) leave() {
	r := &t.slot.rest
	r.inside.Add(-1)
	if r.attend.Load() == 0 {
		return
	}
	t.dev.mu.Lock()
	tell := t.dev.standLocked()
	t.dev.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// standInList is between two entries of a list.
func (d *Device) standInList(s *slot) {
	s.rest.inside.Add(1)
	d.stand(s)
	s.rest.inside.Add(-1)
}

// besideOf is the worker of a variant whose other ones the engine's job has.
func (k *kernels) besideOf(v *variant) *lane.Worker {
	if v.beside == nil {
		v.beside = v.kernel.NewWorker()
		v.bytes += uint64(v.kernel.MemoryBytes())
		k.bytes += uint64(v.kernel.MemoryBytes())
	}
	return v.beside
}

var _ backend.Pauser = (*Device)(nil)
