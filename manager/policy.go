package manager

// Policy says who may use the device, and for how much.
type Policy struct{}

// ParsePolicy reads a policy file. An error names line, column and remedy.
func ParsePolicy(data []byte) (*Policy, error) { panic("not yet") }

// DevPolicy is the policy of developer mode: the tenants default (everything),
// memory-only (the memory facet) and limited (a small quota).
func DevPolicy() *Policy { panic("not yet") }
