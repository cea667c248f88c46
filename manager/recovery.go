package manager

import (
	"context"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
)

// recoveryInterval is how often a driver may say where it stands on the ladder: each
// time wakes whoever waits for it. The answer is held back for that long, and who does
// not wait for it is refused, so that a driver that says more than it should costs
// nobody anything.
const recoveryInterval = 2 * time.Millisecond

// takeRecovery shows where the driver stands on the ladder.
func (l *driverLink) takeRecovery(ctx context.Context, body []byte) error {
	req, err := control.ParseRecoveryRequest(body)
	if err != nil {
		return err
	}

	select {
	case l.climbing <- struct{}{}:
		defer func() { <-l.climbing }()
	default:
		return gpuerr.New(gpuerr.Busy, "the last step of recovery is being told; wait for the answer")
	}

	l.climb(l, req)
	timer := time.NewTimer(recoveryInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}

	return nil
}
