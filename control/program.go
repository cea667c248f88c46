package control

import "math"

// BindingInfo describes one binding of a program.
type BindingInfo struct {
	Name   string
	Access uint32 // 1 read, 2 write, 3 both
	Type   string // "f32"; "": no single one
}

// FieldInfo is one scalar of a program's inline arguments.
type FieldInfo struct {
	Name string
	Type string
	Off  uint32
}

// ProgramInfo is the interface against which a launch is checked.
type ProgramInfo struct {
	Name                string
	Digest              [32]byte
	InlineBytes         uint32
	SharedBytes         uint32
	DynamicElementBytes uint32
	StackBytes          uint32
	Block               [3]uint32
	BlockFree           bool
	OrderDependent      bool
	ToleranceAbs        float64
	ToleranceRel        float64
	Bindings            []BindingInfo
	Inline              []FieldInfo
	Features            []string
	Warnings            []string // the first MaxWarnings
}

// MaxWarnings bounds the warnings of a program in a reply.
const MaxWarnings = 16

func (m ProgramInfo) AppendTo(b []byte) []byte {
	b = appendStr(b, m.Name)
	b = append(b, m.Digest[:]...)
	for _, v := range [...]uint32{m.InlineBytes, m.SharedBytes, m.DynamicElementBytes, m.StackBytes, m.Block[0], m.Block[1], m.Block[2]} {
		b = appendU32(b, v)
	}

	b = appendBool(appendBool(b, m.BlockFree), m.OrderDependent)
	b = appendU64(appendU64(b, math.Float64bits(m.ToleranceAbs)), math.Float64bits(m.ToleranceRel))
	b = appendU32(b, uint32(len(m.Bindings)))
	for _, i := range m.Bindings {
		b = appendStr(appendU32(appendStr(b, i.Name), i.Access), i.Type)
	}

	b = appendU32(b, uint32(len(m.Inline)))
	for _, f := range m.Inline {
		b = appendU32(appendStr(appendStr(b, f.Name), f.Type), f.Off)
	}

	return appendNames(appendNames(b, m.Features), m.Warnings)
}

func (m *ProgramInfo) decode(r *reader) {
	m.Name = r.str(MaxStringBytes, "program.name")
	copy(m.Digest[:], r.take(len(m.Digest), "program.digest"))
	m.InlineBytes = r.u32("program.inlineBytes")
	m.SharedBytes = r.u32("program.sharedBytes")
	m.DynamicElementBytes = r.u32("program.dynamicElementBytes")
	m.StackBytes = r.u32("program.stackBytes")
	for i := range m.Block {
		m.Block[i] = r.u32("program.block")
	}

	m.BlockFree = r.flag("program.blockFree")
	m.OrderDependent = r.flag("program.orderDependent")
	m.ToleranceAbs = math.Float64frombits(r.u64("program.toleranceAbs"))
	m.ToleranceRel = math.Float64frombits(r.u64("program.toleranceRel"))
	m.Bindings = list(r, 8, "program.bindings", func(r *reader) (i BindingInfo) {
		i.Name = r.str(MaxStringBytes, "binding.name")
		i.Access = r.enum(3, "binding.access")
		if i.Access == 0 {
			r.fail("binding.access: 0 is unknown")
		}
		i.Type = r.str(MaxStringBytes, "binding.type")
		return i
	})

	m.Inline = list(r, 8, "program.inline", func(r *reader) FieldInfo {
		return FieldInfo{Name: r.str(MaxStringBytes, "inline.name"), Type: r.str(MaxStringBytes, "inline.type"), Off: r.u32("inline.offset")}
	})

	m.Features = r.names("program.features")
	m.Warnings = r.names("program.warnings")
}

// OpenProgramRequest asks for a program of the session's list.
type OpenProgramRequest struct{ Name string }

func (m OpenProgramRequest) AppendTo(b []byte) []byte { return appendStr(b, m.Name) }
func (m *OpenProgramRequest) decode(r *reader)        { m.Name = r.str(MaxStringBytes, "name") }

// ParseOpenProgramRequest is strict.
func ParseOpenProgramRequest(b []byte) (OpenProgramRequest, error) {
	return parse[OpenProgramRequest](b)
}

// LoadProgramRequest names a bundle in memory of the session.
type LoadProgramRequest struct {
	Buffer uint64 // handle
	Off    uint64
	Bytes  uint64
}

func (m LoadProgramRequest) AppendTo(b []byte) []byte {
	return appendU64(appendU64(appendU64(b, m.Buffer), m.Off), m.Bytes)
}

func (m *LoadProgramRequest) decode(r *reader) {
	m.Buffer = r.handle("buffer")
	m.Off = r.u64("off")
	m.Bytes = r.u64("bytes")
}

// ParseLoadProgramRequest is strict.
func ParseLoadProgramRequest(b []byte) (LoadProgramRequest, error) {
	return parse[LoadProgramRequest](b)
}

// ProgramReply answers OpenProgram and LoadProgram.
type ProgramReply struct {
	Handle uint64
	Info   ProgramInfo
}

func (m ProgramReply) AppendTo(b []byte) []byte { return m.Info.AppendTo(appendU64(b, m.Handle)) }

func (m *ProgramReply) decode(r *reader) {
	m.Handle = r.handle("handle")
	m.Info.decode(r)
}

// ParseProgramReply is strict.
func ParseProgramReply(b []byte) (ProgramReply, error) { return parse[ProgramReply](b) }
