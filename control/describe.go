package control

import "capgpu/outcome"

// Description is the rights of a session, and the bounds that the service promises.
type Description struct {
	Device             DeviceInfo
	HangBoundNanos     uint64
	RevokeBoundNanos   uint64
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
	Poisoned           outcome.Outcome // failed: the outcome that poisoned the session; else pending
	Checked            bool
	GlobalMemAlignment uint32 // bytes
	MaxBindingBytes    uint64 // 0: no bound
	LocalBytes         uint64 // memory of the device's own; 0: none
	ComputeUnits       uint32 // 0: not known
	Deterministic      bool
	Programs           []string
}

func (m Description) AppendTo(b []byte) []byte {
	b = m.Device.AppendTo(b)
	b = appendU64(b, m.HangBoundNanos)
	b = appendU64(b, m.RevokeBoundNanos)
	b = appendU64(b, m.MaxDeadlineNanos)
	b = appendU64(b, m.MaxBufferBytes)
	for _, v := range [...]uint32{m.MaxThreadsPerBlock, m.MaxBlockDim, m.MaxGridDim, m.MaxSharedBytes,
		m.MaxBindings, m.MaxInlineBytes, m.MaxQueueEntries, m.SubgroupSize, m.Facet} {
		b = appendU32(b, v)
	}
	b = appendBool(appendOutcome(b, m.Poisoned), m.Checked)
	b = appendU32(b, m.GlobalMemAlignment)
	b = appendU64(appendU64(b, m.MaxBindingBytes), m.LocalBytes)
	b = appendU32(b, m.ComputeUnits)
	b = appendBool(b, m.Deterministic)
	return appendNames(b, m.Programs)
}

func (m *Description) decode(r *reader) {
	m.Device.decode(r)
	m.HangBoundNanos = r.u64("hangBoundNanos")
	m.RevokeBoundNanos = r.u64("revokeBoundNanos")
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
	m.Poisoned = r.outcome()
	m.Checked = r.flag("checked")
	m.GlobalMemAlignment = r.u32("globalMemAlignment")
	m.MaxBindingBytes = r.u64("maxBindingBytes")
	m.LocalBytes = r.u64("localBytes")
	m.ComputeUnits = r.u32("computeUnits")
	m.Deterministic = r.flag("deterministic")
	m.Programs = r.names("programs")
}

// ParseDescription is strict.
func ParseDescription(b []byte) (Description, error) { return parse[Description](b) }
