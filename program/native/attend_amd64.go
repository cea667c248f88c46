package native

// What attend does with the wide registers: runs of attendRun positions for all heads at
// once. Keys of whole runs are there, also of positions that are not used; the scores of
// these are of no account.

func (a *attend) scoresOfRuns(q *cached, t together, n int) bool {
	if level < levelAVX512 {
		return false
	}
	scoresAVX512(&a.weights[0], &a.query[0], &q.k[t.start], &a.places[0], (n+attendRun-1)/attendRun,
		4*int(q.width), int(q.dim), int(t.groups), int(t.each), 4*attendStep)
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
	valuesAVX512(&a.sums[0], &a.weights[0], &q.v[t.start], &a.places[0], n,
		4*int(q.width), int(q.dim), int(t.groups), int(t.each), 4*attendStep)
	return true
}
