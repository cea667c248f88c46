//go:build !crashpoint

package crashpoint

// Built tells whether Here does anything. It is constant, so that what only a crash
// needs is left out of the program.
const Built = false

// Here is a place to die at; in this build it is nothing.
func Here(string) {}

// ForChild is what to add to the environment of a process that is started as role:
// in this build nothing.
func ForChild(string) []string { return nil }
