//go:build !race

package accel_test

const raceEnabled = false
