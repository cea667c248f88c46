//go:build race

package accel_test

const raceEnabled = true
