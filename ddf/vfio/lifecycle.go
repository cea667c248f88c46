package vfio

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	uapi "capgpu/internal/uapi/vfio"
)

// How a function was stopped, but by a reset.
const (
	noReset = "none: bus mastering off"
	gone    = "gone: it has left the bus"
)

// ErrNotStopped says that a function may still be running: its memory must not be reused.
var ErrNotStopped = errors.New("the function could not be stopped")

// Begin resets the function, arms its vectors and lets it be bus master. reset names
// how it was reset: "flr", "bus", "pm", …, or "none: bus mastering off". When it
// fails, the function is off the bus, or the error is ErrNotStopped, too.
func (f *Function) Begin() (reset string, err error) {
	f.opMu.Lock()
	defer f.opMu.Unlock()
	switch f.state {
	case closed:
		return "", errClosed
	case live:
		return "", gpuerr.New(gpuerr.Internal, "an epoch of %s has begun already", f.identity.PCIAddress)
	}

	if err := f.removal.err(); err != nil {
		return "", err
	}

	f.stopped = ""
	if reset, err = f.beginLocked(); err != nil {
		if _, stop := f.stopLocked(); stop != nil {
			return "", fmt.Errorf("%w: %w (after: %w)", ErrNotStopped, stop, err)
		}
		return "", err
	}

	f.state = live
	return reset, nil
}

// +checklocks:f.opMu
func (f *Function) beginLocked() (reset string, err error) {
	if err := f.notice(f.busMaster(false)); err != nil {
		return "", err
	}

	// Those of an earlier epoch are there still if they could not be disarmed.
	if err := f.notice(f.disarmLocked()); err != nil {
		return "", err
	}
	if reset, err = f.resetLocked(); err != nil {
		return "", err
	}

	f.removal.settled()
	if f.quiesced.IsZero() {
		f.quiesced = time.Now()
	}
	if rest := f.settle - time.Since(f.quiesced); rest > 0 {
		time.Sleep(rest)
	}
	if err := f.armLocked(); err != nil {
		return "", f.notice(err)
	}

	return reset, f.notice(f.busMaster(true))
}

// Quiesce stops the function: when it returns nil, no DMA of it is under way and
// none will come, and no interrupt. It returns how it was stopped. A function that
// has left the bus is quiet.
func (f *Function) Quiesce() (how string, err error) {
	f.opMu.Lock()
	defer f.opMu.Unlock()
	if f.state == closed {
		return "", errClosed
	}
	return f.stopLocked()
}

// +checklocks:f.opMu
func (f *Function) stopLocked() (how string, err error) {
	f.state = idle
	off := f.notice(f.busMaster(false))
	if f.stopped != "" && off == nil {
		return f.stopped, nil
	}

	err = errors.Join(off, f.notice(f.disarmLocked()))
	if errors.Is(err, gpuerr.DeviceLost) {
		f.stopped = gone
		return gone, f.forgetVectorsLocked()
	}

	if err != nil {
		return "", err
	}

	reset, err := f.resetLocked()
	if err == nil {
		// The kernel restores the register's value of before the reset: look.
		err = f.notice(f.busMaster(false))
	}

	if err != nil && !errors.Is(err, gpuerr.DeviceLost) {
		return "", err
	}

	f.quiesced = time.Now()
	switch {
	case err != nil:
		f.stopped = gone
	case reset == noReset:
		f.stopped = noReset
	default:
		f.stopped = "bus mastering off, reset: " + reset
	}

	return f.stopped, nil
}

// forgetVectorsLocked closes the eventfds of a device that can raise no more interrupts,
// whatever the error of their disarming.
//
// +checklocks:f.opMu
func (f *Function) forgetVectorsLocked() error {
	vectors := f.vectors
	f.vectors = nil
	for i := range f.counts {
		f.counts[i].restart()
	}
	return closeVectors(vectors)
}

// resetTries is how often a reset is tried while the kernel does something else with
// the device (pci_try_reset_function answers EAGAIN then).
const (
	resetTries = 20
	resetPause = 10 * time.Millisecond
)

// resetLocked resets the function by the best means that the kernel has for it. One
// that the host is taking away cannot be: its remover holds the lock until Close.
//
// +checklocks:f.opMu
func (f *Function) resetLocked() (name string, err error) {
	if !f.resets {
		return noReset, nil
	}

	for range resetTries {
		if f.removal.err() != nil {
			return noReset, nil
		}
		if err = f.kernel.Reset(f.fd); !errors.Is(err, unix.EAGAIN) {
			break
		}
		time.Sleep(resetPause)
	}

	if err != nil && f.removal.err() != nil {
		return noReset, nil
	}
	if err != nil {
		return "", f.notice(uapi.Error("reset "+f.identity.PCIAddress, err))
	}

	return f.resetName, f.notice(f.config.alive())
}

// Close stops the function and gives it back to the kernel, with its domain and all its
// mappings. An unplug by the host waits for it. Idempotent; everything is released also when
// a step fails, and the error names that step.
func (f *Function) Close() error {
	f.opMu.Lock()
	defer f.opMu.Unlock()
	if f.state == closed {
		return f.closeErr
	}

	var errs []error
	if f.config.kernel != nil { // else there is no device yet
		if _, err := f.stopLocked(); err != nil {
			// The kernel takes bus mastering from a device when its last descriptor is closed
			// (vfio_pci_core_disable), so that going on is right.
			errs = append(errs, err, f.forgetVectorsLocked())
		}
	}

	f.state = closed
	errs = append(errs, f.unwatch())
	for _, w := range f.windows {
		errs = append(errs, w.unmap(f.kernel))
	}

	// The device's descriptor goes with it.
	errs = append(errs, f.container.Close())
	f.closeErr = errors.Join(errs...)
	return f.closeErr
}
