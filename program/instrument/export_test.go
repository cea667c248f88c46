package instrument

import "capgpu/program/verify"

// Uncleared is Instrument, but shared memory begins as the engine has it.
func Uncleared(p *verify.Program) (*Program, error) { return rewrite(p, false) }
