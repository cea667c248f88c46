package host

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/control"
	"capgpu/gpu/backend/engine/wire"
)

// Main is the life of an engine process: it opens its device, tests it, and says so on the
// control socket to the device-manager (package control). It tests it again when the manager
// asks, until the core's first order is on the link: then it serves the core, to the end.
//
// Between the self-test and that word it calls seal, which gives up what only opening a device
// takes (sandbox.Seal).
//
// link and controlFD are SOCK_SEQPACKET sockets, and stay the caller's. An error is also told to
// the manager where that may still listen.
func Main(link, controlFD int, open func() (Device, error), seal func(Device) error) error {
	m := &manager{fd: controlFD}
	dev, err := open()
	if err == nil {
		err = SelfTest(dev)
	}
	if err == nil {
		err = seal(dev)
	}
	if err != nil {
		return m.failed(err)
	}

	d := dev.Describe()
	if err := d.Check(); err != nil {
		return m.failed(err)
	}
	if err := m.say(control.FromEngine{Ready: &d}); err != nil {
		return err
	}

	switch grouped, err := m.wait(link, dev); {
	case err != nil:
		return m.failed(err)
	case !grouped:
		return dev.Close()
	}
	return Serve(link, dev)
}

// manager is the device-manager, at the other end of a socket.
type manager struct{ fd int }

func (m *manager) say(what control.FromEngine) error {
	if err := wire.Send(m.fd, what.Bytes(), -1, 0); err != nil {
		return fmt.Errorf("tell the device-manager: %w", err)
	}
	return nil
}

// failed tells the manager why the engine ends, and returns that.
func (m *manager) failed(err error) error {
	return errors.Join(err, m.say(control.FromEngine{Failed: err.Error()}))
}

// wait answers the manager until there is an order on the link. It is false if the manager, or
// the core, is gone before.
func (m *manager) wait(link int, dev Device) (grouped bool, err error) {
	in := wire.NewReceiver(control.MaxBytes)
	for {
		poll := []unix.PollFd{{Fd: int32(link), Events: unix.POLLIN}, {Fd: int32(m.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return false, fmt.Errorf("wait for an order: %w", err)
		}
		switch {
		case poll[0].Revents&unix.POLLIN != 0:
			return true, nil
		case poll[0].Revents != 0:
			return false, nil
		case poll[1].Revents == 0:
			continue
		}

		b, fd, err := in.Receive(m.fd, 0)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err == nil && fd >= 0 {
			err = errors.Join(errors.New("the device-manager's message has a descriptor"), unix.Close(fd))
		}
		if err != nil {
			return false, fmt.Errorf("hear the device-manager: %w", err)
		}

		ask, err := control.ParseToEngine(b)
		if err != nil {
			return false, err
		}
		if err := SelfTest(dev); err != nil {
			return false, err
		}
		if err := m.say(control.FromEngine{Tested: ask.Test}); err != nil {
			return false, err
		}
	}
}
