package server

import "time"

// passTime is the intended upper bound of a pass: a quarter of the time after which
// a driver declares one submission hung, which costs all sessions of the device
// their work.
const passTime = 500 * time.Millisecond

// pace is the largest number of rows of a pass, found by measuring: it doubles
// after a pass that was short enough, and halves after one that was not. Therefore,
// whatever the model, the device and the positions, no pass takes much longer than
// twice passTime unless one of fewer rows already came close.
type pace struct{ rows int }

// most is the bound of the next pass, within the engine's batch.
func (p *pace) most(batch int) int { return max(1, min(p.rows, batch)) }

// took records the duration of a pass.
func (p *pace) took(rows int, wall time.Duration) {
	if wall > passTime {
		p.rows = rows / 2
	} else {
		p.rows = max(p.rows, 2*rows)
	}
}
