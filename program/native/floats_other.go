//go:build !amd64

package native

// RestoreFloats has nothing to do on this processor.
func RestoreFloats() {}
