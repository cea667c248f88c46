package driver

import (
	"encoding/json"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
)

func (d *driver) status(m *control.Message) ([]byte, error) {
	req, err := control.ParseDriverStatusRequest(m.Body)
	if err != nil {
		return nil, err
	}

	status := d.device.Status(req.Tenant)
	crashpoint.Here("driver.status.read")
	body, err := json.Marshal(status)
	if err != nil {
		return nil, gpuerr.New(gpuerr.Internal, "describe the device: %v", err)
	}

	// If the sessions do not fit, they are cut from the end; the budgets stay
	// whole.
	for len(body) > maxStatusBytes && halveSessions(&status) {
		if body, err = json.Marshal(status); err != nil {
			return nil, gpuerr.New(gpuerr.Internal, "describe the device: %v", err)
		}
	}

	if len(body) > maxStatusBytes {
		return nil, gpuerr.New(gpuerr.Busy, "the status has %d bytes, more than a message; ask for one tenant", len(body))
	}

	return body, nil
}

const maxStatusBytes = control.MaxLongBytes - control.HeaderBytes

// halveSessions reports whether there was something to cut.
func halveSessions(s *gpu.Status) (some bool) {
	for i := range s.Tenants {
		t := &s.Tenants[i]
		some = some || len(t.Sessions) > 0
		t.Sessions = t.Sessions[:len(t.Sessions)/2]
	}
	return some
}
