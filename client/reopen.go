package client

import (
	"context"
	"errors"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
)

// OpenReady is Open of a device that may have no driver at the moment: it waits for
// one, and for the next one if that is lost while it opens the session. It is what a
// program calls at its start, and again when a session of it has ended with
// gpuerr.Disconnected or gpuerr.DeviceLost:
//
//	for {
//		s, err := conn.OpenReady(ctx, 0)
//		if err != nil {
//			return err // ctx has ended, or there will be no driver any more
//		}
//		err = work(ctx, s) // from the beginning: nothing of the session before is left
//		…
//	}
//
// It fails as Open does where waiting is of no use (gpuerr.DeviceLost: the device is
// wedged), and with ctx's error when that ends first.
func (c *Conn) OpenReady(ctx context.Context, index uint32) (*Session, error) {
	for {
		// The service waits, and opens it as soon as there is a driver.
		s, err := c.open(ctx, control.TypeOpenReady, control.OpenReadyRequest{Index: index, TimeoutNanos: uint64(waitSlice)}.AppendTo(nil))
		switch {
		case errors.Is(err, gpuerr.Unimplemented): // a service that does not wait
			return c.openPolling(ctx, index)
		case !errors.Is(err, gpuerr.Busy):
			return s, err
		}
		timer := time.NewTimer(reopenPause) // it may have had no room to wait
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// openPolling is OpenReady with what every service has.
func (c *Conn) openPolling(ctx context.Context, index uint32) (*Session, error) {
	var st State
	for {
		s, err := c.Open(ctx, index)
		if !errors.Is(err, gpuerr.Busy) {
			return s, err
		}
		patience := recoveryPatience
		if st.State == Ready && !st.Suspended { // and busy for another reason
			patience = reopenPause
		}
		// The end of a suspension is a step.
		if st, err = c.NextStepFor(ctx, index, st.Epoch, patience); err != nil {
			return nil, err
		}
	}
}

const (
	// recoveryPatience is how long openPolling believes that there is still no driver.
	recoveryPatience = time.Second
	reopenPause      = 2 * time.Millisecond
)
