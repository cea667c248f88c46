package driver

import (
	"context"

	"capgpu/control"
	"capgpu/outcome"
)

// runRecovery reports every change of the device's recovery step to the manager. It
// sends one request at a time, always the latest state, and nothing waits for it.
// It ignores a refusal or a missing answer, because the next change is reported
// again.
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
			Step:      uint32(min(st.Step, outcome.FunctionReset)), // the manager sees anything beyond by itself
			Last:      uint32(min(st.Last, outcome.FunctionReset)),
			Incidents: st.Incidents,
		}
		if now == last {
			continue
		}

		last = now
		if _, err := caller.Call(ctx, control.TypeRecovery, now.AppendTo(nil), nil); err != nil {
			d.log.Debug("could not report a recovery step to the manager", "step", st.Step, "err", err)
		}
	}
}
