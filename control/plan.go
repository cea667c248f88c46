package control

// PlanRequest is a part of a policy file. An operator asks which changes the file
// would cause, and sends its parts one after the other. The reply to the last part
// is JSON, and the replies to the others are empty.
type PlanRequest struct {
	More bool // this is not the last part
	Text []byte
}

// MaxPlanBytes bounds a part of the file.
const MaxPlanBytes = MaxMessageBytes - HeaderBytes - 4 - 4

func (m PlanRequest) AppendTo(b []byte) []byte {
	return append(appendU32(appendBool(b, m.More), uint32(len(m.Text))), m.Text...)
}

func (m *PlanRequest) decode(r *reader) {
	m.More = r.flag("more")
	m.Text = r.take(r.count(1, "text"), "text")
}

// ParsePlanRequest is strict.
func ParsePlanRequest(b []byte) (PlanRequest, error) { return parse[PlanRequest](b) }
