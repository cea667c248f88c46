//go:build race

package lane_test

const raceEnabled = true
