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
	// Prepare takes over what an earlier manager left behind: functions that are
	// wanted stay claimed, everything else is given back to its former driver. It
	// returns, for all, the addresses of every display and accelerator function
	// besides, and checks that the host has what functions will need. It is called
	// first.
	Prepare(functions []FunctionPolicy, all bool) (found []string, err error)
	// Open claims the function at p.Address and opens it. The Function's Close
	// gives it back to its former driver. o may be nil.
	Open(p FunctionPolicy, o iommu.Observer) (Function, error)
	// Faults follows what the IOMMU refuses. sink must not call the FaultSource.
	Faults(sink func(faultlog.Fault)) (FaultSource, error)
	// Close lets what Prepare took for this manager alone go to the next. It is called
	// last; functions that are still open stay claimed.
	Close() error
}

// functions are those to be served, by index.
func (m *Manager) functions() ([]FunctionPolicy, error) {
	p := m.cfg.Policy
	if m.cfg.Hardware == nil {
		return p.named(), nil
	}

	found, err := m.cfg.Hardware.Prepare(p.Functions, p.ClaimAll)
	if err != nil {
		return nil, err
	}

	all := slices.Clone(p.named())
	for _, address := range found {
		f := p.Device.functionOf(address, address)
		f.Optional = true // one that cannot be had is no reason to serve none
		all = append(all, f)
	}

	return all, nil
}

// openDevices opens every function of the policy. What it opens is in m.devices,
// also when it fails.
func (m *Manager) openDevices() error {
	functions, err := m.functions()
	if err != nil {
		return err
	}

	h, err := readMemory()
	if err == nil {
		err = fits(functions, h) // those that were found, too
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
	if p.Address == "" {
		return newFakeFunction(fakeWindows, fakeVectors)
	}
	life, own, err := m.deviceLogs(p.Name)
	if err != nil {
		return nil, err
	}
	return m.cfg.Hardware.Open(p, m.reconcile.function(p.Name, life, own).observer())
}

// releaseDevices gives back functions that no driver was started for.
func (m *Manager) releaseDevices() error {
	var errs []error
	for _, d := range m.devices {
		errs = append(errs, d.release())
	}
	return errors.Join(errs...)
}

// each calls f for devices side by side: no driver has to wait for another one that
// does not answer.
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
