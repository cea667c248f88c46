package control

// Access of a DMA that faulted.
const (
	FaultRead  = 1
	FaultWrite = 2
)

// DeviceFaultRequest reports to a driver that its device accessed memory that it
// was not granted. The IOMMU refused, and nothing was read or changed.
type DeviceFaultRequest struct {
	IOVA   uint64
	Access uint32 // FaultRead or FaultWrite
	Count  uint64 // faults since the last such message, at least 1; the fields describe the last one
	Reason string // the kernel's words
}

func (m DeviceFaultRequest) AppendTo(b []byte) []byte {
	return appendStr(appendU64(appendU32(appendU64(b, m.IOVA), m.Access), m.Count), m.Reason)
}

func (m *DeviceFaultRequest) decode(r *reader) {
	m.IOVA = r.u64("iova")
	if m.Access = r.enum(FaultWrite, "access"); m.Access == 0 {
		r.fail("access: 0 is unknown")
	}
	if m.Count = r.u64("count"); m.Count == 0 {
		r.fail("count: no fault")
	}
	m.Reason = r.str(MaxStringBytes, "reason")
}

// ParseDeviceFaultRequest is strict.
func ParseDeviceFaultRequest(b []byte) (DeviceFaultRequest, error) {
	return parse[DeviceFaultRequest](b)
}

// DeviceGoneRequest reports to a driver that its device is gone.
type DeviceGoneRequest struct{ Reason string }

func (m DeviceGoneRequest) AppendTo(b []byte) []byte { return appendStr(b, m.Reason) }
func (m *DeviceGoneRequest) decode(r *reader)        { m.Reason = r.str(MaxStringBytes, "reason") }

// ParseDeviceGoneRequest is strict.
func ParseDeviceGoneRequest(b []byte) (DeviceGoneRequest, error) { return parse[DeviceGoneRequest](b) }
