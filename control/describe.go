package control

// Description is what a session may do and the bounds the service promises.
type Description struct {
	Device             DeviceInfo
	HangBoundNanos     uint64
	MaxDeadlineNanos   uint64
	MaxBufferBytes     uint64
	MaxThreadsPerBlock uint32
	MaxBlockDim        uint32
	MaxGridDim         uint32
	MaxSharedBytes     uint32
	MaxBindings        uint32
	MaxInlineBytes     uint32
	MaxQueueEntries    uint32
	SubgroupSize       uint32
	Facet              uint32
	Programs           []string
}

func (m Description) AppendTo(b []byte) []byte {
	b = m.Device.AppendTo(b)
	b = appendU64(b, m.HangBoundNanos)
	b = appendU64(b, m.MaxDeadlineNanos)
	b = appendU64(b, m.MaxBufferBytes)
	for _, v := range [...]uint32{m.MaxThreadsPerBlock, m.MaxBlockDim, m.MaxGridDim, m.MaxSharedBytes,
		m.MaxBindings, m.MaxInlineBytes, m.MaxQueueEntries, m.SubgroupSize, m.Facet} {
		b = appendU32(b, v)
	}
	return appendNames(b, m.Programs)
}

func (m *Description) decode(r *reader) {
	m.Device.decode(r)
	m.HangBoundNanos = r.u64("hangBoundNanos")
	m.MaxDeadlineNanos = r.u64("maxDeadlineNanos")
	m.MaxBufferBytes = r.u64("maxBufferBytes")
	m.MaxThreadsPerBlock = r.u32("maxThreadsPerBlock")
	m.MaxBlockDim = r.u32("maxBlockDim")
	m.MaxGridDim = r.u32("maxGridDim")
	m.MaxSharedBytes = r.u32("maxSharedBytes")
	m.MaxBindings = r.u32("maxBindings")
	m.MaxInlineBytes = r.u32("maxInlineBytes")
	m.MaxQueueEntries = r.u32("maxQueueEntries")
	m.SubgroupSize = r.u32("subgroupSize")
	m.Facet = r.enum(maxFacet, "facet")
	m.Programs = r.names("programs")
}

// ParseDescription is strict.
func ParseDescription(b []byte) (Description, error) { return parse[Description](b) }

// BindingInfo describes one binding of a program.
type BindingInfo struct {
	Name   string
	Access uint32 // 1 read, 2 write, 3 both
}

// ProgramInfo is what a launch is checked against.
type ProgramInfo struct {
	Name                   string
	Digest                 [32]byte
	InlineBytes            uint32
	SharedBytes            uint32
	BlockX, BlockY, BlockZ uint32
	Bindings               []BindingInfo
}

func (m ProgramInfo) AppendTo(b []byte) []byte {
	b = appendStr(b, m.Name)
	b = append(b, m.Digest[:]...)
	for _, v := range [...]uint32{m.InlineBytes, m.SharedBytes, m.BlockX, m.BlockY, m.BlockZ, uint32(len(m.Bindings))} {
		b = appendU32(b, v)
	}
	for _, i := range m.Bindings {
		b = appendU32(appendStr(b, i.Name), i.Access)
	}
	return b
}

func (m *ProgramInfo) decode(r *reader) {
	m.Name = r.str(MaxStringBytes, "program.name")
	copy(m.Digest[:], r.take(len(m.Digest), "program.digest"))
	m.InlineBytes = r.u32("program.inlineBytes")
	m.SharedBytes = r.u32("program.sharedBytes")
	m.BlockX = r.u32("program.blockX")
	m.BlockY = r.u32("program.blockY")
	m.BlockZ = r.u32("program.blockZ")
	m.Bindings = list(r, 6, "program.bindings", func(r *reader) (i BindingInfo) {
		i.Name = r.str(MaxStringBytes, "binding.name")
		i.Access = r.enum(3, "binding.access")
		if i.Access == 0 {
			r.fail("binding.access: 0 is unknown")
		}
		return i
	})
}

// OpenProgramRequest asks for a program of the session's list.
type OpenProgramRequest struct{ Name string }

func (m OpenProgramRequest) AppendTo(b []byte) []byte { return appendStr(b, m.Name) }
func (m *OpenProgramRequest) decode(r *reader)        { m.Name = r.str(MaxStringBytes, "name") }

// ParseOpenProgramRequest is strict.
func ParseOpenProgramRequest(b []byte) (OpenProgramRequest, error) {
	return parse[OpenProgramRequest](b)
}

// LoadProgramRequest comes with a memfd that holds a bundle at its start.
type LoadProgramRequest struct{ Bytes uint64 }

func (m LoadProgramRequest) AppendTo(b []byte) []byte { return appendU64(b, m.Bytes) }
func (m *LoadProgramRequest) decode(r *reader)        { m.Bytes = r.u64("bytes") }

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
