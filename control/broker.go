package control

// Empty is a body without fields.
type Empty struct{}

func (*Empty) decode(*reader) {}

// HelloRequest starts a tenant socket.
type HelloRequest struct {
	Version uint32 // HelloVersion
}

func (m HelloRequest) AppendTo(b []byte) []byte { return appendU32(b, m.Version) }
func (m *HelloRequest) decode(r *reader)        { m.Version = r.u32("version") }

// ParseHelloRequest is strict.
func ParseHelloRequest(b []byte) (HelloRequest, error) { return parse[HelloRequest](b) }

// HelloReply identifies the asker as the service sees it.
type HelloReply struct {
	Version uint32
	Tenant  string
}

func (m HelloReply) AppendTo(b []byte) []byte {
	return appendStr(appendU32(b, m.Version), m.Tenant)
}
func (m *HelloReply) decode(r *reader) {
	m.Version = r.u32("version")
	m.Tenant = r.str(MaxStringBytes, "tenant")
}

// ParseHelloReply is strict.
func ParseHelloReply(b []byte) (HelloReply, error) { return parse[HelloReply](b) }

// DeviceInfo is one device, from a tenant's point of view.
type DeviceInfo struct {
	Index       uint32
	State       uint32 // 0 starting, 1 ready, 2 recovering, 3 wedged
	Epoch       uint64
	MemoryBytes uint64
	VendorID    uint16
	DeviceID    uint16
	Facet       uint32 // 0 memory, 1 program, 2 full
	Recovery    uint32 // outcome.RecoveryStep
	Generation  uint32 // drivers of this epoch, with those that were upgraded, from 1
	Suspended   bool   // an operator has suspended it
	Name        string
	Backend     string
	PCIAddress  string
	Shortage    string // the resource that its driver lacks; empty: none
}

// deviceBytes is the minimal size of a DeviceInfo.
const deviceBytes = 4 + 4 + 8 + 8 + 2 + 2 + 4 + 4 + 4 + 4 + 4*2

func (m DeviceInfo) AppendTo(b []byte) []byte {
	b = appendU32(b, m.Index)
	b = appendU32(b, m.State)
	b = appendU64(b, m.Epoch)
	b = appendU64(b, m.MemoryBytes)
	b = appendU16(b, m.VendorID)
	b = appendU16(b, m.DeviceID)
	b = appendU32(b, m.Facet)
	b = appendU32(b, m.Recovery)
	b = appendBool(appendU32(b, m.Generation), m.Suspended)
	b = appendStr(b, m.Name)
	b = appendStr(b, m.Backend)
	b = appendStr(b, m.PCIAddress)
	return appendStr(b, m.Shortage)
}

func (m *DeviceInfo) decode(r *reader) {
	m.Index = r.u32("device.index")
	m.State = r.enum(maxState, "device.state")
	m.Epoch = r.u64("device.epoch")
	m.MemoryBytes = r.u64("device.memoryBytes")
	m.VendorID = r.u16("device.vendor")
	m.DeviceID = r.u16("device.device")
	m.Facet = r.enum(maxFacet, "device.facet")
	m.Recovery = r.enum(maxRecovery, "device.recovery")
	m.Generation = r.u32("device.generation")
	m.Suspended = r.flag("device.suspended")
	m.Name = r.str(MaxStringBytes, "device.name")
	m.Backend = r.str(MaxStringBytes, "device.backend")
	m.PCIAddress = r.str(MaxStringBytes, "device.pciAddress")
	m.Shortage = r.str(MaxStringBytes, "device.shortage")
}

// ListDevicesReply lists the devices of the tenant.
type ListDevicesReply struct{ Devices []DeviceInfo }

func (m ListDevicesReply) AppendTo(b []byte) []byte {
	b = appendU32(b, uint32(len(m.Devices)))
	for _, d := range m.Devices {
		b = d.AppendTo(b)
	}
	return b
}

func (m *ListDevicesReply) decode(r *reader) {
	m.Devices = list(r, deviceBytes, "devices", func(r *reader) (d DeviceInfo) { d.decode(r); return d })
}

// ParseListDevicesReply is strict.
func ParseListDevicesReply(b []byte) (ListDevicesReply, error) { return parse[ListDevicesReply](b) }

// OpenDeviceRequest asks for a session on a device.
type OpenDeviceRequest struct{ Index uint32 }

func (m OpenDeviceRequest) AppendTo(b []byte) []byte { return appendU32(b, m.Index) }
func (m *OpenDeviceRequest) decode(r *reader)        { m.Index = r.u32("index") }

// ParseOpenDeviceRequest is strict.
func ParseOpenDeviceRequest(b []byte) (OpenDeviceRequest, error) { return parse[OpenDeviceRequest](b) }

// OpenDeviceReply comes with the control socket of the session.
type OpenDeviceReply struct{ Epoch uint64 }

func (m OpenDeviceReply) AppendTo(b []byte) []byte { return appendU64(b, m.Epoch) }
func (m *OpenDeviceReply) decode(r *reader)        { m.Epoch = r.u64("epoch") }

// ParseOpenDeviceReply is strict.
func ParseOpenDeviceReply(b []byte) (OpenDeviceReply, error) { return parse[OpenDeviceReply](b) }

// OpenReadyRequest asks for a session on a device. If the device has no driver at
// the moment, the answer waits for one.
type OpenReadyRequest struct {
	Index        uint32
	TimeoutNanos uint64 // no longer than this
}

func (m OpenReadyRequest) AppendTo(b []byte) []byte {
	return appendU64(appendU32(b, m.Index), m.TimeoutNanos)
}

func (m *OpenReadyRequest) decode(r *reader) {
	m.Index = r.u32("index")
	m.TimeoutNanos = r.u64("timeoutNanos")
}

// ParseOpenReadyRequest is strict.
func ParseOpenReadyRequest(b []byte) (OpenReadyRequest, error) { return parse[OpenReadyRequest](b) }

// NextStateRequest waits until a device is no longer "ready in Epoch".
type NextStateRequest struct {
	Index        uint32
	Epoch        uint64
	TimeoutNanos uint64
	Steps        bool // a change of the recovery step counts as a change, too
}

func (m NextStateRequest) AppendTo(b []byte) []byte {
	return appendBool(appendU64(appendU64(appendU32(b, m.Index), m.Epoch), m.TimeoutNanos), m.Steps)
}

func (m *NextStateRequest) decode(r *reader) {
	m.Index = r.u32("index")
	m.Epoch = r.u64("epoch")
	m.TimeoutNanos = r.u64("timeoutNanos")
	m.Steps = r.flag("steps")
}

// ParseNextStateRequest is strict.
func ParseNextStateRequest(b []byte) (NextStateRequest, error) { return parse[NextStateRequest](b) }

// NextStateReply is one state in the life of a device.
type NextStateReply struct {
	Epoch   uint64
	State   uint32
	Changed bool // false: the time was up first
	// The current recovery step of the device, the highest step of the last
	// incident, and the number of incidents in this epoch.
	Recovery, LastRecovery uint32 // outcome.RecoveryStep
	Incidents              uint64
	Suspended              bool // an operator has suspended it, in whatever state it is
	Cause                  string
}

func (m NextStateReply) AppendTo(b []byte) []byte {
	b = appendBool(appendU32(appendU64(b, m.Epoch), m.State), m.Changed)
	b = appendU64(appendU32(appendU32(b, m.Recovery), m.LastRecovery), m.Incidents)
	return appendStr(appendBool(b, m.Suspended), m.Cause)
}

func (m *NextStateReply) decode(r *reader) {
	m.Epoch = r.u64("epoch")
	m.State = r.enum(maxState, "state")
	m.Changed = r.flag("changed")
	m.Recovery = r.enum(maxRecovery, "recovery")
	m.LastRecovery = r.enum(maxRecovery, "lastRecovery")
	m.Incidents = r.u64("incidents")
	m.Suspended = r.flag("suspended")
	m.Cause = r.str(MaxStringBytes, "cause")
}

// ParseNextStateReply is strict.
func ParseNextStateReply(b []byte) (NextStateReply, error) { return parse[NextStateReply](b) }

// StatusRequest asks for the driver's status; the reply is JSON.
type StatusRequest struct{ Index uint32 }

func (m StatusRequest) AppendTo(b []byte) []byte { return appendU32(b, m.Index) }
func (m *StatusRequest) decode(r *reader)        { m.Index = r.u32("index") }

// ParseStatusRequest is strict.
func ParseStatusRequest(b []byte) (StatusRequest, error) { return parse[StatusRequest](b) }
