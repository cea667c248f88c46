package manager

import (
	"context"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
)

// recoveryInterval bounds how often a driver may report its level of recovery, because each
// report wakes waiters. The answer is delayed for so long, and a driver that does not wait
// for it is refused. A driver that reports too often costs other processes nothing.
const recoveryInterval = 2 * time.Millisecond

// takeRecovery publishes the driver's level of recovery.
func (l *driverLink) takeRecovery(ctx context.Context, body []byte) error {
	req, err := control.ParseRecoveryRequest(body)
	if err != nil {
		return err
	}

	select {
	case l.escalating <- struct{}{}:
		defer func() { <-l.escalating }()
	default:
		return gpuerr.New(gpuerr.Busy, "the last step of recovery is being told; wait for the answer")
	}

	l.escalate(l, req)
	timer := time.NewTimer(recoveryInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}

	return nil
}
