package gpu

import (
	"math/bits"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// sentJobs is what the device has: by the low bits of the jobs' ids, and in the order of
// sending, which is the order in which the device runs them, but for short ones that
// preempt others. The oldest is thought to be running, since headSince.
type sentJobs struct {
	n        int
	slots    []*job
	free     []uint32
	sequence uint64
	oldest   *job
	newest   *job

	headSince  time.Time
	progress   uint64 // the backend's count, last seen to grow
	progressAt time.Time
	stills     int               // how often the machine stood still during the oldest (watch.go)
	preempter  backend.Preempter // nil: the backend is none
	preempted  time.Duration     // of which headSince and progressAt know
}

// flight is what the reactor knows of a job that the device has.
type flight struct {
	older, newer *job   // sent before it, and the next after
	order        uint64 // of sending; 0: it was not sent
	begun        bool   // it had begun when it ended, as far as the order tells
	estimate     int64  // charged to the flow when it was sent
	sent         time.Time
	had          time.Duration   // device time that it had when it was sent: of entries that ran
	stopAs       outcome.Outcome // the outcome if it does not end by itself; pending: nobody stopped it
	stoppedAt    time.Time
	guilty       bool          // missing the deadline was a strike
	ran          time.Duration // until it was stopped for a missed deadline
	faulted      bool          // it ends failed (iommuFault), whatever the device says
	broken       bool          // it may have read half a result (failure.go)
	reported     reported
}

// reported is the end of a job as the device told it, where it is not settled yet
// (settle.go).
type reported struct {
	yes  bool
	how  outcome.Outcome
	time time.Duration
}

func (s *sentJobs) init(places int, preempter backend.Preempter) {
	s.preempter = preempter
	places = max(places, 1)
	s.slots = make([]*job, 1<<bits.Len(uint(places-1)))
	for i := range places {
		s.free = append(s.free, uint32(places-1-i))
	}
}

// find is the live job of an id, or nil.
func (s *sentJobs) find(id backend.JobID) *job {
	if j := s.slots[uint64(id)&uint64(len(s.slots)-1)]; j != nil && j.work.ID == id {
		return j
	}
	return nil
}

// number gives a job that is about to run its id and its place in the order.
func (s *sentJobs) number(j *job, slot uint32) {
	s.sequence++
	j.work.ID = backend.JobID(s.sequence*uint64(len(s.slots)) + uint64(slot))
	j.work.Round = j.session().failures.round + 1
	j.flight = flight{order: s.sequence, estimate: j.flight.estimate, had: j.flight.had}
}

// add gives a job an id and a place. There is one.
func (s *sentJobs) add(j *job) {
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.number(j, i)
	s.slots[i] = j
	s.n++
	j.state = jobSent
	j.flight.older = s.newest

	if s.newest == nil {
		s.oldest = j
		s.headChanged()
	} else {
		s.newest.flight.newer = j
	}

	s.newest = j
}

// drop takes a job out.
func (s *sentJobs) drop(j *job) {
	i := uint32(uint64(j.work.ID) & uint64(len(s.slots)-1))
	s.slots[i] = nil
	s.free = append(s.free, i)
	s.n--
	f := &j.flight
	if f.newer != nil {
		f.newer.flight.older = f.older
	} else {
		s.newest = f.older
	}

	if f.older != nil {
		f.older.flight.newer = f.newer
	} else if s.oldest = f.newer; s.oldest != nil {
		s.headChanged()
	}

	f.older, f.newer = nil, nil
}

// headChanged follows a change of the job that is now thought to run.
func (s *sentJobs) headChanged() {
	s.headSince = time.Now()
	s.progressAt, s.stills = s.headSince, 0
	if s.preempter != nil {
		s.preempted = s.preempter.Preempted()
	}
}

// of counts the jobs of a queue.
func (s *sentJobs) of(q *queue) (n int) {
	for j := s.oldest; j != nil; j = j.flight.newer {
		if j.queue == q {
			n++
		}
	}
	return n
}

// check verifies that the books about the device agree with each other.
func (s *sentJobs) check(places int) error {
	listed, slotted := 0, 0
	for j := s.oldest; j != nil; j = j.flight.newer {
		listed++
		if s.find(j.work.ID) != j {
			return gpuerr.New(gpuerr.Internal, "job %d is listed as sent and has no slot", j.work.ID)
		}
	}

	for _, j := range s.slots {
		if j != nil {
			slotted++
		}
	}

	if places = max(places, 1); listed != slotted || listed != s.n || slotted+len(s.free) != places {
		return gpuerr.New(gpuerr.Internal, "%d jobs listed, %d counted, %d in slots, %d slots free of %d", listed, s.n, slotted, len(s.free), places)
	}
	return nil
}
