package gpu

import (
	"maps"
	"slices"
	"time"

	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
	"capgpu/ledger"
	"capgpu/outcome"
)

// Status is a snapshot for operators. Everything counted is the ledger's.
type Status struct {
	Version      string         `json:"version"` // of the driver: the release, or the commit
	Device       string         `json:"device"`
	Backend      string         `json:"backend"`
	Epoch        uint64         `json:"epoch"`
	UptimeNanos  time.Duration  `json:"uptimeNanos"`
	Lost         string         `json:"lost,omitempty"` // why, if the device is lost
	Resets       uint64         `json:"resets"`
	Strays       uint64         `json:"strays"` // completions of no live job
	Faults       uint64         `json:"faults"` // accesses of the device that the IOMMU refused
	AuditDropped uint64         `json:"auditDropped"`
	Recovery     RecoveryStatus `json:"recovery"`
	Tenants      []TenantStatus `json:"tenants"`
}

// TenantStatus is one tenant.
type TenantStatus struct {
	Tenant      string          `json:"tenant"`
	Strikes     uint64          `json:"strikes"` // ever
	BannedUntil *time.Time      `json:"bannedUntil,omitempty"`
	BanReason   string          `json:"banReason,omitempty"` // hang, notStopped or iommuFault
	Budget      []BudgetStatus  `json:"budget"`
	Sessions    []SessionStatus `json:"sessions"`
}

// BudgetStatus is one resource class of an account; classes that are unused and
// unlimited are left out.
type BudgetStatus struct {
	Class    string `json:"class"`
	Reserved uint64 `json:"reserved"`
	Used     uint64 `json:"used"`
	Limit    uint64 `json:"limit"` // 2^64-1: none
	Peak     uint64 `json:"peak"`
}

// SessionStatus is one session.
type SessionStatus struct {
	ID              uint64            `json:"id"`
	Parent          uint64            `json:"parent,omitempty"` // of a restricted session
	Facet           string            `json:"facet"`
	AgeNanos        time.Duration     `json:"ageNanos"`
	Closing         bool              `json:"closing,omitempty"`
	Buffers         uint64            `json:"buffers"`
	MemoryBytes     uint64            `json:"memoryBytes"`
	HeldBytes       uint64            `json:"heldBytes"` // DMA memory in chunks, with what is kept
	Fences          uint64            `json:"fences"`
	Programs        uint64            `json:"programs"`
	QueueSlots      uint64            `json:"queueSlots"`
	InFlight        uint64            `json:"inFlight"`
	DeviceTimeNanos uint64            `json:"deviceTimeNanos"`
	Launches        uint64            `json:"launches"`
	Strikes         uint64            `json:"strikes"`
	Trap            string            `json:"trap,omitempty"` // what poisoned it
	Outcomes        map[string]uint64 `json:"outcomes"`       // entries ended, by outcome
}

// Status tells how the device and its tenants stand; an empty tenant means all.
func (d *Device) Status(tenant string) Status {
	var recovery RecoveryStatus
	d.reactor.mail.call(func() { recovery = d.reactor.recovery.status(tenant) }) // and has counted what came before
	st := Status{
		Version: cmdline.Revision(),
		Device:  d.cfg.Info.Name, Backend: d.cfg.Backend.Info().Name, Epoch: d.cfg.Info.Epoch,
		UptimeNanos: d.age(), Resets: d.reactor.resets.Load(), Strays: d.reactor.strays.Load(), Faults: d.reactor.faults.Load(),
		AuditDropped: d.records.Lost(), Recovery: recovery, Tenants: []TenantStatus{},
	}
	if err := d.Err(); err != nil {
		st.Lost = gpuerr.From(err).Msg
	}
	sessions := d.sessionList()
	d.mu.Lock()
	tenants := maps.Clone(d.tenants)
	d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		if tenant == "" || tenant == name {
			st.Tenants = append(st.Tenants, tenants[name].status(sessions))
		}
	}
	return st
}

func (t *tenant) status(sessions []*Session) TenantStatus {
	st := TenantStatus{Tenant: t.name, BannedUntil: t.bannedUntil.Load(), Strikes: t.strikes.Total(), Budget: budgetStatus(t.account.Snapshot()), Sessions: []SessionStatus{}}
	if st.BannedUntil != nil {
		st.BanReason = reasonOf(&t.banReason)
	}
	for _, s := range sessions {
		if s.tenant == t {
			st.Sessions = append(st.Sessions, s.status())
		}
	}
	return st
}

func budgetStatus(entries []ledger.Entry) []BudgetStatus {
	out := []BudgetStatus{}
	for _, e := range entries {
		if e.Peak > 0 || e.Limit != ledger.Unlimited {
			out = append(out, BudgetStatus{Class: e.Class.String(), Reserved: e.Reserved, Used: e.Used, Limit: e.Limit, Peak: e.Peak})
		}
	}
	return out
}

func (s *Session) status() SessionStatus {
	var held [ledger.NumClasses]uint64
	for _, e := range s.account.Snapshot() {
		held[e.Class] = e.Reserved + e.Used
	}
	st := SessionStatus{
		ID: s.id, Facet: s.facet.String(), AgeNanos: time.Since(s.opened), Closing: !s.node.Live(),
		Buffers: held[ledger.Buffers], MemoryBytes: held[ledger.DeviceMemory], HeldBytes: s.heaps.HeldBytes(),
		Fences: held[ledger.Fences], Programs: held[ledger.Programs], QueueSlots: held[ledger.QueueSlots],
		InFlight: held[ledger.InFlight], DeviceTimeNanos: held[ledger.DeviceTime],
		Launches: s.launches.Load(), Strikes: s.strikes.Load(), Outcomes: map[string]uint64{}, Parent: s.parentID(),
	}
	switch how := s.Poisoned(); how.Cause {
	case outcome.TrapCause:
		st.Trap = how.Trap.String()
	case outcome.IOMMUFault:
		st.Trap = how.Cause.String()
	}
	for kind := range s.ended {
		if n := s.ended[kind].Load(); n > 0 {
			st.Outcomes[outcome.Kind(kind).String()] = n
		}
	}
	return st
}
