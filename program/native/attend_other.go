//go:build !amd64

package native

func (a *attend) scoresOfRuns(*cached, together, int) bool { return false }
func (a *attend) weighAtOnce(n, heads int) bool            { return false }
func (a *attend) valuesOfRuns(*cached, together, int) bool { return false }
