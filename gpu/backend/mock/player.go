package mock

import (
	"math/rand/v2"
	"slices"

	"capgpu/gpu/backend"
)

// player deals out a script's faults, and keeps what they need of the past.
// Guarded by Device.mu.
type player struct {
	faults []Fault
	left   []uint64 // hits left of each fault
	random *rand.Rand
	jobs   uint64 // submitted so far

	goneTold bool
	ring     [maxJobs]backend.Completion // the completion ring, as the device left it
	written  uint64                      // completions written to it
	held     []backend.Completion        // of lateCompletion faults, before the reset
	late     []backend.Completion        // after it
}

func newPlayer(s Script) player {
	p := player{faults: slices.Clone(s.Faults), left: make([]uint64, len(s.Faults))}
	for i, f := range p.faults {
		p.left[i] = f.Times
		if f.Times == 0 {
			p.left[i] = ^uint64(0)
		}
	}
	if len(p.faults) > 0 {
		p.random = rand.New(rand.NewPCG(s.Seed, 0x6361706770750000))
	}
	return p
}

// pick returns the fault of the job that has just been counted.
func (p *player) pick(job *backend.Job) Fault {
	for i := range p.faults {
		f := &p.faults[i]
		if p.left[i] == 0 || !f.Fits(job, p.jobs) {
			continue
		}
		if f.Probability > 0 && p.random.Float64() >= f.Probability {
			continue
		}
		p.left[i]--
		return *f
	}
	return Fault{}
}

// fits says that a fault may fit the next job: then pick has to say.
func (p *player) fits(job *backend.Job) bool {
	for i := range p.faults {
		if p.left[i] > 0 && p.faults[i].Fits(job, p.jobs+1) {
			return true
		}
	}
	return false
}

// wrongJobID is no job's: the core counts up from 1.
const wrongJobID backend.JobID = 1<<63 | 0xbad

// tamper returns the completion to tell, and how often.
func (p *player) tamper(kind FaultKind, c backend.Completion) (told backend.Completion, times int) {
	switch kind {
	case FaultLostCompletion:
		return c, 0
	case FaultLateCompletion:
		p.held = append(p.held, c)
		return c, 0
	case FaultWrongJobID:
		c.ID = wrongJobID
		return c, 1
	}
	p.ring[p.written%maxJobs] = c
	p.written++
	if kind == FaultDuplicateCompletion {
		return c, 2
	}
	return c, 1
}

// reset releases the withheld completions to the first job after it.
func (p *player) reset() {
	p.late = append(p.late, p.held...)
	p.held = nil
}
