package control

// HandoverRequest asks a driver to stop everything within a time and to send its
// state on the socket in this message.
type HandoverRequest struct{ TimeoutNanos uint64 }

func (m HandoverRequest) AppendTo(b []byte) []byte { return appendU64(b, m.TimeoutNanos) }
func (m *HandoverRequest) decode(r *reader)        { m.TimeoutNanos = r.u64("timeoutNanos") }

// ParseHandoverRequest is strict.
func ParseHandoverRequest(b []byte) (HandoverRequest, error) { return parse[HandoverRequest](b) }

// HandoverReply counts the state that was sent, or taken over. It is the driver's
// claim, for the log.
type HandoverReply struct {
	Sessions uint32
	Bytes    uint64 // of the state, without the contents of shared memory
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
	Force  bool // end the sessions that block the driver's replacement
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

// EndedReply is the number of sessions that a driver has ended. Nothing of them
// runs any more.
type EndedReply struct{ Sessions uint32 }

func (m EndedReply) AppendTo(b []byte) []byte { return appendU32(b, m.Sessions) }
func (m *EndedReply) decode(r *reader)        { m.Sessions = r.u32("sessions") }

// ParseEndedReply is strict.
func ParseEndedReply(b []byte) (EndedReply, error) { return parse[EndedReply](b) }

// UpgradeReply is the result of a successful upgrade.
type UpgradeReply struct {
	Epoch      uint64 // the same as before
	Generation uint64 // drivers of this epoch, counted from 1
	Sessions   uint32 // that went on
	Preempted  uint32 // sessions that were ended because they blocked it
	PauseNanos uint64 // for which nothing was started on the device
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
