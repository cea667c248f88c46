package ddfrpc

import (
	"context"
	"errors"
	"time"

	"capgpu/gpuerr"
)

// The manager serves 32 calls of a link at once and refuses further ones with
// E_BUSY. A Free that is refused must not fail, because a driver that cannot
// unmap has to give up its device: what clients do in parallel must never add up
// to that. So the calls of this side are counted, those that clients cause have
// their places, and those that must get through have places of their own.
const (
	maxAsking = 8 // operations at once that may be refused; an Alloc is two calls
	maxSaying = 8 // operations at once that must get through
	// maxKilling: these take as long as the kernel needs to end a process that uses a GPU.
	maxKilling = 8

	// allocPace is how long an Alloc keeps its place after its answer. The manager
	// counts a question for a quarter of a second longer than it is open, and 20,000
	// of them end the link: this keeps Alloc, and the Free that follows, far below.
	allocPace = time.Millisecond
)

// enter waits for a place among places.
func (l *Link) enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-l.ctx.Done():
		return nil, errRevoked
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// insist makes a call that must get through. Calls that were given up on this
// side, and so have no place here any more, may still run at the manager: E_BUSY
// only means later.
func (l *Link) insist(call func() error) error {
	leave, err := l.enter(l.ctx, l.saying)
	if err != nil {
		return errRevoked
	}

	defer leave()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := l.mapped(call())
		if !errors.Is(err, gpuerr.Busy) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			timer.Stop()
			return errRevoked
		}
	}
}
