package floatstest

// Mode is MXCSR.
//
//go:noescape
func Mode() uint32

// SetMode sets MXCSR, as a fault in assembly leaves it behind.
//
//go:noescape
func SetMode(mode uint32)
