package driver

import (
	"math"
	"time"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/ledger"
)

// The manager's messages about the policy, while sessions are open.

func (d *driver) setTenant(m *control.Message) error {
	req, err := control.ParseSetTenantRequest(m.Body)
	if err != nil {
		return err
	}
	return d.device.SetTenant(req.Tenant, gpu.TenantPolicy{Limits: limitsOf(req.Limits), Weight: req.Weight, MaxDeadline: deadlineOf(req.MaxDeadlineNanos)})
}

// endSessions ends the sessions that the policy no longer allows.
func (d *driver) endSessions(m *control.Message) ([]byte, error) {
	req, err := control.ParseEndSessionsRequest(m.Body)
	if err != nil {
		return nil, err
	}
	cause, ended := gpuerr.New(gpuerr.Revoked, "reason=policy: %s", req.Reason), 0
	if req.All {
		ended = d.device.EndTenant(req.Tenant, cause)
	} else {
		ended = d.device.EndSessions(req.Tenant, req.Sessions, cause)
	}
	crashpoint.Here("driver.policy.ended")
	return control.EndedReply{Sessions: uint32(ended)}.AppendTo(nil), nil
}

// limitsOf reads the limits of a message. A resource that it does not name is
// unlimited.
func limitsOf(list []control.Limit) ledger.Limits {
	l := ledger.NoLimits()
	for _, x := range list {
		l[x.Class] = x.Amount // the codec knows the classes
	}
	return l
}

func deadlineOf(nanos uint64) time.Duration {
	return time.Duration(min(nanos, math.MaxInt64))
}
