package control

// HandoverRequest asks a driver to stop everything within a time and to tell its state on
// the socket that comes along.
type HandoverRequest struct{ TimeoutNanos uint64 }

func (m HandoverRequest) AppendTo(b []byte) []byte { return appendU64(b, m.TimeoutNanos) }
func (m *HandoverRequest) decode(r *reader)        { m.TimeoutNanos = r.u64("timeoutNanos") }

// ParseHandoverRequest is strict.
func ParseHandoverRequest(b []byte) (HandoverRequest, error) { return parse[HandoverRequest](b) }

// HandoverReply says how much was told, or taken over. It is the driver's claim, for
// records.
type HandoverReply struct {
	Sessions uint32
	Bytes    uint64 // of the state, without what lies in shared memory
}

func (m HandoverReply) AppendTo(b []byte) []byte {
	return appendU64(appendU32(b, m.Sessions), m.Bytes)
}

func (m *HandoverReply) decode(r *reader) {
	m.Sessions = r.u32("sessions")
	m.Bytes = r.u64("bytes")
}

// ParseHandoverReply is strict.
func ParseHandoverReply(b []byte) (HandoverReply, error) { return parse[HandoverReply](b) }

// DeviceRequest names a device to device-manager's own socket.
type DeviceRequest struct{ Device string }

func (m DeviceRequest) AppendTo(b []byte) []byte { return appendStr(b, m.Device) }
func (m *DeviceRequest) decode(r *reader)        { m.Device = r.str(MaxStringBytes, "device") }

// ParseDeviceRequest is strict.
func ParseDeviceRequest(b []byte) (DeviceRequest, error) { return parse[DeviceRequest](b) }

// UpgradeRequest names a device to device-manager's own socket.
type UpgradeRequest struct {
	Device string
	Force  bool // end the sessions that keep the driver from being replaced
}

func (m UpgradeRequest) AppendTo(b []byte) []byte {
	return appendBool(appendStr(b, m.Device), m.Force)
}

func (m *UpgradeRequest) decode(r *reader) {
	m.Device = r.str(MaxStringBytes, "device")
	m.Force = r.flag("force")
}

// ParseUpgradeRequest is strict.
func ParseUpgradeRequest(b []byte) (UpgradeRequest, error) { return parse[UpgradeRequest](b) }

// EndedReply says how many sessions a driver has ended: of them nothing runs any more.
type EndedReply struct{ Sessions uint32 }

func (m EndedReply) AppendTo(b []byte) []byte { return appendU32(b, m.Sessions) }
func (m *EndedReply) decode(r *reader)        { m.Sessions = r.u32("sessions") }

// ParseEndedReply is strict.
func ParseEndedReply(b []byte) (EndedReply, error) { return parse[EndedReply](b) }

// UpgradeReply says what became of an upgrade that went well.
type UpgradeReply struct {
	Epoch      uint64 // the same as before
	Generation uint64 // drivers of this epoch, counted from 1
	Sessions   uint32 // that went on
	Preempted  uint32 // that were ended because they were in the way
	PauseNanos uint64 // for which nothing of the device was begun
}

func (m UpgradeReply) AppendTo(b []byte) []byte {
	return appendU64(appendU32(appendU32(appendU64(appendU64(b, m.Epoch), m.Generation), m.Sessions), m.Preempted), m.PauseNanos)
}

func (m *UpgradeReply) decode(r *reader) {
	m.Epoch = r.u64("epoch")
	m.Generation = r.u64("generation")
	m.Sessions = r.u32("sessions")
	m.Preempted = r.u32("preempted")
	m.PauseNanos = r.u64("pauseNanos")
}

// ParseUpgradeReply is strict.
func ParseUpgradeReply(b []byte) (UpgradeReply, error) { return parse[UpgradeReply](b) }
