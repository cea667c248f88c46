package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"capgpu/control"
)

// removal is the reason of an epoch's end when the host takes the function away.
type removal struct{ cause error }

func (r *removal) Error() string { return fmt.Sprintf("the function was removed: %v", r.cause) }
func (r *removal) Unwrap() error { return r.cause }

func isRemoved(f Function) bool {
	select {
	case <-f.Removed():
		return true
	default:
		return false
	}
}

// removal returns why a removed function is gone.
func (d *device) removal() *removal {
	cause := d.function.Cause()
	if cause == nil {
		cause = errors.New("it has left the bus")
	}
	return &removal{cause}
}

// runRemovalWatch ends the epoch when the function is removed. The board shows at once that
// the device is gone; the driver is taken down after that.
func (d *device) runRemovalWatch(ctx context.Context, failure *epochFailure) {
	select {
	case <-d.function.Removed():
		r := d.removal()
		d.showRemoved(r)
		failure.report(r)
	case <-ctx.Done():
	}
}

func (d *device) showRemoved(r *removal) {
	d.board.update(func(s *snapshot) { s.state, s.link, s.cause = wedged, nil, clipped(r.Error()) })
}

// goneTimeout is how long a driver may take to tell its sessions that the device is gone. The
// host waits meanwhile.
const goneTimeout = time.Second

// tellGone lets the driver end its sessions with deviceLost before it is killed.
func (l *driverLink) tellGone(r *removal) error {
	ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
	defer cancel()
	_, err := l.call(ctx, control.TypeDeviceGone, control.DeviceGoneRequest{Reason: clipped(r.cause.Error())}.AppendTo(nil), nil)
	return err
}

// remove gives up a removed function, which no driver uses and no memory is mapped for. No
// driver follows: a device that is plugged in later is claimed by the next device-manager.
func (d *device) remove(epoch uint64) {
	r := d.removal()
	d.showRemoved(r)
	d.say("device %s removed: %v", d.name, r.cause)
	d.log.Warn("removed", "epoch", epoch, "cause", r.cause)
	d.recordHost("device.removed", fmt.Sprintf("%s epoch=%d cause=%q", d.name, epoch, clipped(r.cause.Error())))
	if err := d.closeFunction(); err != nil {
		d.log.Warn("close a removed function", "err", err)
	}
}
