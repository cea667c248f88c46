package server

import "time"

// passTime is how long a pass may take: a quarter of what a driver gives the work of one
// submission before it takes it for hung, which costs all sessions of the device theirs.
const passTime = 500 * time.Millisecond

// pace is how many rows a pass may have, found out by passes: after each that was short
// enough twice as many as it had, after one that was not half as many. So whatever the
// model, the device and the positions, no pass takes much longer than twice passTime that
// one of fewer rows has not announced.
type pace struct{ rows int }

// most is the bound of the next pass, of those that the engine has room for.
func (p *pace) most(batch int) int { return max(1, min(p.rows, batch)) }

// took tells of a pass.
func (p *pace) took(rows int, wall time.Duration) {
	if wall > passTime {
		p.rows = rows / 2
	} else {
		p.rows = max(p.rows, 2*rows)
	}
}
