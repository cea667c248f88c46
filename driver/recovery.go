package driver

import (
	"context"

	"capgpu/control"
	"capgpu/outcome"
)

// runRecovery tells the manager where the device stands on the ladder, as that changes:
// one request at a time, the latest state only, and nothing waits for it. What the
// manager refuses or does not answer is of no account: the next change is told again.
func (d *driver) runRecovery(ctx context.Context, caller *control.Caller) {
	var last control.RecoveryRequest
	for {
		select {
		case <-d.device.RecoveryChanged():
		case <-caller.Done():
			return
		case <-ctx.Done():
			return
		}
		st := d.device.Recovery()
		now := control.RecoveryRequest{
			Step:      uint32(min(st.Step, outcome.FunctionReset)), // beyond, the manager sees for itself
			Last:      uint32(min(st.Last, outcome.FunctionReset)),
			Incidents: st.Incidents,
		}
		if now == last {
			continue
		}
		last = now
		if _, err := caller.Call(ctx, control.TypeRecovery, now.AppendTo(nil), nil); err != nil {
			d.log.Debug("the manager was not told of a step of recovery", "step", st.Step, "err", err)
		}
	}
}
