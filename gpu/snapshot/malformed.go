// Package snapshot has what all parts of a driver's state share that is told to a successor.
package snapshot

import "capgpu/gpuerr"

// Malformed refuses a state that does not agree with itself, or with what was lent.
func Malformed(format string, args ...any) error {
	return gpuerr.New(gpuerr.Protocol, "the state of the other driver: "+format, args...)
}
