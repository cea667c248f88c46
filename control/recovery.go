package control

import "capgpu/outcome"

// RecoveryRequest is a driver's place in the recovery escalation: the current step,
// the highest step of the last incident, and the number of incidents in this epoch.
// The driver sends it on each change, one at a time and only the latest.
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
