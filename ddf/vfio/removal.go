package vfio

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/shm"
	uapi "capgpu/internal/uapi/vfio"
)

// removal is the one way out: a device that is gone, or asked for, stays so.
type removal struct {
	gone  chan struct{}
	once  *sync.Once
	cause *atomic.Pointer[gpuerr.Error]

	trouble chan error // of one that has not gone

	// Descriptors of the watch; empty if the kernel offers none.
	watched []watched
	watch   *sync.WaitGroup
}

type watched struct {
	index uint32
	event *shm.Event
}

func newRemoval() removal {
	return removal{gone: make(chan struct{}), once: &sync.Once{}, cause: &atomic.Pointer[gpuerr.Error]{}, trouble: make(chan error, 1), watch: &sync.WaitGroup{}}
}

// set says that the device is gone. The first cause counts.
func (r *removal) set(cause *gpuerr.Error) {
	r.once.Do(func() {
		r.cause.Store(cause)
		close(r.gone)
	})
}

// err is why the device is gone, or nil.
func (r *removal) err() error {
	if e := r.cause.Load(); e != nil {
		return e
	}
	return nil
}

// Trouble delivers an error that the device has reported without leaving the bus (PCIe AER,
// which a driver may be able to provoke). The device is not reliable then: quiesce it, which
// resets it. Errors from before a Begin are discarded; further ones before the first is
// received count as the same.
func (f *Function) Trouble() <-chan error { return f.removal.trouble }

// settled forgets trouble that a reset has ended.
func (r *removal) settled() {
	select {
	case <-r.trouble:
	default:
	}
}

// reported checks the device after the kernel has reported an error of it.
func (f *Function) reported() {
	if f.checkAlive() != nil {
		return
	}
	select {
	case f.removal.trouble <- gpuerr.New(gpuerr.IO, "%s reported an error (PCIe AER; the kernel's log says which)", f.identity.PCIAddress):
	default:
	}
}

// Removed is closed when the host asks for the function, or it has left the bus. Close
// it then.
func (f *Function) Removed() <-chan struct{} { return f.removal.gone }

// Cause says why Removed was closed; nil before.
func (f *Function) Cause() error { return f.removal.err() }

// checkAlive asks whether the device is on the bus, and remembers if not. If it cannot find
// out, the device counts as alive.
func (f *Function) checkAlive() error {
	return f.notice(ignoreOther(f.config.alive()))
}

func ignoreOther(err error) error {
	if errors.Is(err, gpuerr.DeviceLost) {
		return err
	}
	return nil
}

// notice remembers that the device is gone, if err says so, and returns err.
func (f *Function) notice(err error) error {
	if errors.Is(err, gpuerr.DeviceLost) {
		f.removal.set(gpuerr.From(err))
	}
	return err
}

// watchRemoval asks the kernel for events of an unplug, and of errors of the device.
func (f *Function) watchRemoval(kinds uint32) error {
	for _, w := range []struct {
		index uint32
		told  func()
	}{
		{uapi.IRQIndexReq, func() {
			f.removal.set(gpuerr.New(gpuerr.DeviceLost, "the host takes %s away (unplugged, or unbound from vfio-pci)", f.identity.PCIAddress))
		}},
		{uapi.IRQIndexErr, f.reported},
	} {
		if w.index >= kinds {
			continue
		}
		info, err := f.kernel.IRQInfo(f.fd, w.index)
		if errors.Is(err, unix.EINVAL) {
			continue // no PCI Express, so no AER
		}
		if err != nil {
			return uapi.Error("ask about the notice of removal", err)
		}
		if info.Count == 0 {
			continue
		}
		event, err := shm.NewEvent()
		if err != nil {
			return err
		}
		f.removal.watched = append(f.removal.watched, watched{w.index, event})
		if err := f.setTrigger(w.index, 0, []int32{int32(event.FD())}); err != nil {
			return uapi.Error("ask for the notice of removal", err)
		}
		f.removal.watch.Go(func() {
			for {
				if _, err := event.Wait(context.Background()); err != nil {
					return // closed by unwatch
				}
				w.told()
			}
		})
	}

	return nil
}

// unwatch ends the watch.
func (f *Function) unwatch() error {
	var errs []error
	for _, w := range f.removal.watched {
		// The kernel forgets it with the descriptor of the device in any case.
		_ = f.kernel.SetIRQs(f.fd, uapi.IRQSet{Flags: uapi.IRQDataNone | uapi.IRQActionTrigger, Index: w.index}, nil)
		errs = append(errs, w.event.Close())
	}
	f.removal.watch.Wait()
	f.removal.watched = nil
	return errors.Join(errs...)
}
