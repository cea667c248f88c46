package control

// Limit is one bound of a ledger account.
type Limit struct {
	Class  uint32 // ledger.Class
	Amount uint64 // math.MaxUint64: none
}

func appendLimits(b []byte, limits []Limit) []byte {
	b = appendU32(b, uint32(len(limits)))
	for _, l := range limits {
		b = appendU64(appendU32(b, l.Class), l.Amount)
	}
	return b
}

// limits reads a list of limits; each class at most once.
func (r *reader) limits(field string) []Limit {
	var seen [NumClasses]bool
	return list(r, 12, field, func(r *reader) Limit {
		l := Limit{Class: r.enum(NumClasses-1, field+".class"), Amount: r.u64(field + ".amount")}
		if r.err == nil && seen[l.Class] {
			r.fail("%s: class %d comes twice", field, l.Class)
		}
		seen[l.Class] = true
		return l
	})
}

// RestrictRequest asks for a weaker session.
type RestrictRequest struct {
	Facet            uint32
	MaxDeadlineNanos uint64 // 0: as the parent
	Check            bool   // programs run under the checker; see docs/architecture.md
	Limits           []Limit
	Programs         []string // empty: as the parent
}

func (m RestrictRequest) AppendTo(b []byte) []byte {
	b = appendBool(appendU64(appendU32(b, m.Facet), m.MaxDeadlineNanos), m.Check)
	return appendNames(appendLimits(b, m.Limits), m.Programs)
}

func (m *RestrictRequest) decode(r *reader) {
	m.Facet = r.enum(maxFacet, "facet")
	m.MaxDeadlineNanos = r.u64("maxDeadlineNanos")
	m.Check = r.flag("check")
	m.Limits = r.limits("limits")
	m.Programs = r.names("programs")
}

// ParseRestrictRequest is strict.
func ParseRestrictRequest(b []byte) (RestrictRequest, error) { return parse[RestrictRequest](b) }

// ReadyRequest is a driver's first message.
type ReadyRequest struct {
	Epoch       uint64
	MemoryBytes uint64
	Backend     string
}

func (m ReadyRequest) AppendTo(b []byte) []byte {
	return appendStr(appendU64(appendU64(b, m.Epoch), m.MemoryBytes), m.Backend)
}

func (m *ReadyRequest) decode(r *reader) {
	m.Epoch = r.u64("epoch")
	m.MemoryBytes = r.u64("memoryBytes")
	m.Backend = r.str(MaxStringBytes, "backend")
}

// ParseReadyRequest is strict.
func ParseReadyRequest(b []byte) (ReadyRequest, error) { return parse[ReadyRequest](b) }

// AttachRequest comes with the control socket of the new session.
type AttachRequest struct {
	Session          uint64
	Tenant           string
	Facet            uint32
	Weight           uint32
	MaxDeadlineNanos uint64
	TenantLimits     []Limit
	SessionLimits    []Limit
	Programs         []string
}

func (m AttachRequest) AppendTo(b []byte) []byte {
	b = appendStr(appendU64(b, m.Session), m.Tenant)
	b = appendU64(appendU32(appendU32(b, m.Facet), m.Weight), m.MaxDeadlineNanos)
	b = appendLimits(appendLimits(b, m.TenantLimits), m.SessionLimits)
	return appendNames(b, m.Programs)
}

func (m *AttachRequest) decode(r *reader) {
	m.Session = r.u64("session")
	m.Tenant = r.str(MaxStringBytes, "tenant")
	m.Facet = r.enum(maxFacet, "facet")
	m.Weight = r.u32("weight")
	m.MaxDeadlineNanos = r.u64("maxDeadlineNanos")
	m.TenantLimits = r.limits("tenantLimits")
	m.SessionLimits = r.limits("sessionLimits")
	m.Programs = r.names("programs")
}

// ParseAttachRequest is strict.
func ParseAttachRequest(b []byte) (AttachRequest, error) { return parse[AttachRequest](b) }

// DriverStatusRequest asks a driver for the status of a tenant, or of all; the
// reply is JSON.
type DriverStatusRequest struct{ Tenant string }

func (m DriverStatusRequest) AppendTo(b []byte) []byte { return appendStr(b, m.Tenant) }
func (m *DriverStatusRequest) decode(r *reader)        { m.Tenant = r.str(MaxStringBytes, "tenant") }

// ParseDriverStatusRequest is strict.
func ParseDriverStatusRequest(b []byte) (DriverStatusRequest, error) {
	return parse[DriverStatusRequest](b)
}

// SetTenantRequest sets a tenant's rights from now on, also in open sessions.
type SetTenantRequest struct {
	Tenant           string
	Weight           uint32
	MaxDeadlineNanos uint64 // of one submission; 0: the device's
	Limits           []Limit
}

func (m SetTenantRequest) AppendTo(b []byte) []byte {
	b = appendU64(appendU32(appendStr(b, m.Tenant), m.Weight), m.MaxDeadlineNanos)
	return appendLimits(b, m.Limits)
}

func (m *SetTenantRequest) decode(r *reader) {
	m.Tenant = r.str(MaxStringBytes, "tenant")
	m.Weight = r.u32("weight")
	m.MaxDeadlineNanos = r.u64("maxDeadlineNanos")
	m.Limits = r.limits("limits")
}

// ParseSetTenantRequest is strict.
func ParseSetTenantRequest(b []byte) (SetTenantRequest, error) { return parse[SetTenantRequest](b) }

// EndSessionsRequest makes a driver end sessions of a tenant, with all sessions
// restricted from them: the named ones or, with All, every one. With All the driver
// then forgets the tenant as soon as nothing of it is left.
type EndSessionsRequest struct {
	Tenant   string
	All      bool
	Reason   string   // the reason that the sessions' clients get
	Sessions []uint64 // as Attach named them; none with All
}

// MaxEndSessions is the largest number of sessions in one EndSessionsRequest.
const MaxEndSessions = (MaxMessageBytes - HeaderBytes - 2*(2+MaxStringBytes) - 4 - 4) / 8

func (m EndSessionsRequest) AppendTo(b []byte) []byte {
	b = appendStr(appendBool(appendStr(b, m.Tenant), m.All), m.Reason)
	b = appendU32(b, uint32(len(m.Sessions)))
	for _, id := range m.Sessions {
		b = appendU64(b, id)
	}
	return b
}

func (m *EndSessionsRequest) decode(r *reader) {
	m.Tenant = r.str(MaxStringBytes, "tenant")
	m.All = r.flag("all")
	m.Reason = r.str(MaxStringBytes, "reason")
	m.Sessions = list(r, 8, "sessions", func(r *reader) uint64 { return r.u64("sessions") })
	if m.All && len(m.Sessions) > 0 {
		r.fail("sessions: %d are named besides all", len(m.Sessions))
	}
}

// ParseEndSessionsRequest is strict.
func ParseEndSessionsRequest(b []byte) (EndSessionsRequest, error) {
	return parse[EndSessionsRequest](b)
}

// SettleFaultsReply gives the time up to which, by now, no report of a fault of the
// driver's device is missing.
type SettleFaultsReply struct{ CompleteNanos uint64 }

func (m SettleFaultsReply) AppendTo(b []byte) []byte { return appendU64(b, m.CompleteNanos) }
func (m *SettleFaultsReply) decode(r *reader)        { m.CompleteNanos = r.u64("completeNanos") }

// ParseSettleFaultsReply is strict.
func ParseSettleFaultsReply(b []byte) (SettleFaultsReply, error) { return parse[SettleFaultsReply](b) }
