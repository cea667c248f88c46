package control

// RecordListRequest names a recording in memory of the session: entries in the
// layout of a ring, then the bytes of their arguments.
type RecordListRequest struct {
	Buffer   uint64 // handle
	Off      uint64
	Entries  uint32
	ArgBytes uint32
}

func (m RecordListRequest) AppendTo(b []byte) []byte {
	return appendU32(appendU32(appendU64(appendU64(b, m.Buffer), m.Off), m.Entries), m.ArgBytes)
}

func (m *RecordListRequest) decode(r *reader) {
	m.Buffer = r.handle("buffer")
	m.Off = r.u64("off")
	m.Entries = r.u32("entries")
	m.ArgBytes = r.u32("argBytes")
}

// ParseRecordListRequest is strict.
func ParseRecordListRequest(b []byte) (RecordListRequest, error) {
	return parse[RecordListRequest](b)
}
