package iocpu

// For tests.
var (
	Half   = half
	Unhalf = unhalf
)
