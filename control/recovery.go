package control

import "capgpu/outcome"

// RecoveryRequest is where a driver stands on the ladder of recovery: the step now, how
// far the last incident went, and how many there were in this epoch. It is told as it
// changes, one at a time and the latest only.
type RecoveryRequest struct {
	Step      uint32 // outcome.RecoveryStep, at most functionReset
	Last      uint32
	Incidents uint64
}

func (m RecoveryRequest) AppendTo(b []byte) []byte {
	return appendU64(appendU32(appendU32(b, m.Step), m.Last), m.Incidents)
}

func (m *RecoveryRequest) decode(r *reader) {
	m.Step = r.enum(uint32(outcome.FunctionReset), "step")
	m.Last = r.enum(uint32(outcome.FunctionReset), "last")
	m.Incidents = r.u64("incidents")
}

// ParseRecoveryRequest is strict.
func ParseRecoveryRequest(b []byte) (RecoveryRequest, error) { return parse[RecoveryRequest](b) }
