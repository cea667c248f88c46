package native

// The part of attend that uses the wide registers: runs of attendRun positions for
// all heads at once. It reads whole runs of keys, also unused positions; their
// scores are ignored.

// positionsOnce is the number of positions, whole runs, that one assembly function
// does.
func positionsOnce(q *cached, t together) int {
	return max(attendRun, int(tileWords/(t.groups*t.each*q.dim))&^(attendRun-1))
}

func (a *attend) scoresOfRuns(q *cached, t together, n int) bool {
	if level < levelAVX512 {
		return false
	}
	step := positionsOnce(q, t)
	for i := 0; i < n; i += step {
		scoresAVX512(&a.weights[i], &a.query[0], &q.k[t.start], &a.places[i/attendRun], (min(step, n-i)+attendRun-1)/attendRun,
			4*int(q.width), int(q.dim), int(t.groups), int(t.each), 4*attendStep)
	}
	return true
}

func (a *attend) weighAtOnce(n, heads int) bool {
	if level < levelAVX512 {
		return false
	}
	weighAVX512(&a.weights[0], n, heads, 4*attendStep, &a.most[0], &a.sum[0])
	return true
}

func (a *attend) valuesOfRuns(q *cached, t together, n int) bool {
	if level < levelAVX512 {
		return false
	}
	step := positionsOnce(q, t)
	for i := 0; i < n; i += step {
		valuesAVX512(&a.sums[0], &a.weights[i], &q.v[t.start], &a.places[i/attendRun], min(step, n-i),
			4*int(q.width), int(q.dim), int(t.groups), int(t.each), 4*attendStep)
	}
	return true
}
