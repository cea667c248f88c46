package driver

import (
	"context"
	"math"
	"time"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
)

// fault reports to the core an access that the IOMMU refused.
func (d *driver) fault(m *control.Message) error {
	req, err := control.ParseDeviceFaultRequest(m.Body)
	if err != nil {
		return err
	}
	d.log.Error("the IOMMU refused an access of the device", "iova", req.IOVA, "write", req.Access == control.FaultWrite, "faults", req.Count, "reason", req.Reason)
	d.device.Fault(gpu.Fault{IOVA: req.IOVA, Write: req.Access == control.FaultWrite, Count: req.Count, Reason: req.Reason})
	return nil
}

// settle asks the manager for all faults up to now. They arrive as DeviceFault,
// before the answer. complete says up to when none can be missing.
func (d *driver) settle(ctx context.Context) (complete time.Duration, err error) {
	link := d.link.Load()
	if link == nil {
		return 0, gpuerr.New(gpuerr.Busy, "the link to device-manager is not up")
	}
	reply, err := link.Call(ctx, control.TypeSettleFaults, nil, nil)
	if err != nil {
		return 0, err
	}
	r, err := control.ParseSettleFaultsReply(reply.Body)
	return time.Duration(min(r.CompleteNanos, math.MaxInt64)), err
}

// gone ends everything. It returns when all sessions have learned of it.
func (d *driver) gone(m *control.Message) error {
	req, err := control.ParseDeviceGoneRequest(m.Body)
	if err != nil {
		return err
	}
	d.device.Gone(req.Reason)
	return d.close()
}
