package records

import "time"

// Pace bounds the records of one cause: a burst, and then one in each interval, which counts
// the others.
type Pace struct {
	interval, most time.Duration
	credit         time.Duration // interval is one record
	at             time.Time
	more           uint64 // without a record since the last one that had one
}

// NewPace is a pace with all its burst left.
func NewPace(burst int, interval time.Duration, now time.Time) *Pace {
	most := time.Duration(burst) * interval
	return &Pace{interval: interval, most: most, credit: most, at: now}
}

// Enter reports whether an event has a record, and how many before it had none.
func (p *Pace) Enter(now time.Time) (more uint64, recorded bool) {
	p.credit = min(p.credit+now.Sub(p.at), p.most)
	p.at = now
	if p.credit < p.interval {
		p.more++
		return 0, false
	}
	p.credit -= p.interval
	more, p.more = p.more, 0
	return more, true
}
