package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"capgpu/gpuerr"
	"capgpu/iommu"
	"capgpu/iommu/faultlog"
)

// Hardware claims functions for the manager and opens them.
type Hardware interface {
	// Prepare takes over from an earlier manager: functions in the list stay claimed, all
	// others go back to their former drivers. With all, it also returns the addresses of
	// every other display and accelerator function. It checks that the host has what the
	// functions need. It is called first.
	Prepare(functions []FunctionPolicy, all bool) (found []string, err error)
	// Open claims the function at p.Address and opens it. The Function's Close
	// gives it back to its former driver. o may be nil.
	Open(p FunctionPolicy, o iommu.Observer) (Function, error)
	// Faults reports the DMA that the IOMMU refuses. sink must not call the FaultSource.
	Faults(sink func(faultlog.Fault)) (FaultSource, error)
	// Close releases what Prepare locked, for the next manager. It is called last; functions
	// that are still open stay claimed.
	Close() error
}

// functions returns the functions to be served, by index.
func (m *Manager) functions() ([]FunctionPolicy, error) {
	p := m.cfg.Policy
	if m.cfg.Hardware == nil {
		return p.named(), nil
	}

	found, err := m.cfg.Hardware.Prepare(pciFunctions(p.Functions), p.ClaimAll)
	if err != nil {
		return nil, err
	}

	all := slices.Clone(p.named())
	for _, address := range found {
		if slices.ContainsFunc(all, func(f FunctionPolicy) bool { return f.Address == address }) {
			continue // the kernel keeps it: engines use its nodes
		}
		f := p.Device.functionOf(address, address)
		f.Optional = true // the others are served without it
		all = append(all, f)
	}

	return all, nil
}

// openDevices opens every function of the policy. Opened ones are in m.devices, also when it
// fails.
func (m *Manager) openDevices() error {
	functions, err := m.functions()
	if err != nil {
		return err
	}

	h, err := readMemory()
	if err == nil {
		err = fits(functions, h) // with those that were found
	}
	if err != nil {
		return err
	}

	entries, err := affordableEntries(m.cfg.Policy, functions)
	if err != nil {
		return err
	}

	for i, p := range functions {
		f, err := m.openFunction(p)
		if err != nil && p.Optional {
			m.say("device %s is left out: %v", p.Name, err)
			m.log.Warn("an optional function is left out", "device", p.Name, "address", p.Address, "err", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("open function %s (%s): %w", p.Name, p.Address, err)
		}
		d, err := newDevice(m, i, p, f, entries[i])
		if err != nil {
			return fmt.Errorf("open function %s: %w", p.Name, err)
		}
		m.devices = append(m.devices, d)
	}

	if len(m.devices) == 0 {
		return gpuerr.New(gpuerr.NoDevice, "none of the policy's functions is there; device-manager --list-functions tells which are")
	}

	return nil
}

func (m *Manager) openFunction(p FunctionPolicy) (Function, error) {
	switch {
	case p.Node != nil:
		return m.openNodeFunction(p)
	case p.Address == "":
		return newFakeFunction(fakeWindows, fakeVectors)
	}
	life, own, err := m.deviceLogs(p.Name)
	if err != nil {
		return nil, err
	}
	return m.cfg.Hardware.Open(p, m.reconcile.function(p.Name, life, own).observer())
}

// releaseDevices closes functions for which no driver was started.
func (m *Manager) releaseDevices() error {
	var errs []error
	for _, d := range m.devices {
		errs = append(errs, d.release())
	}
	return errors.Join(errs...)
}

// each calls f for all devices at the same time: a driver that does not answer delays no
// other.
func each(devices []*device, f func(*device) error) error {
	errs := make([]error, len(devices))
	var running sync.WaitGroup
	for i, d := range devices {
		running.Go(func() { errs[i] = f(d) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (m *Manager) closeDevices(ctx context.Context) error {
	return each(m.devices, func(d *device) error { return d.Close(ctx) })
}
