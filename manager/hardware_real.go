package manager

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"capgpu/ddf"
	"capgpu/ddf/vfio"
	"capgpu/gpuerr"
	"capgpu/internal/pci"
	"capgpu/iommu"
	"capgpu/iommu/faultlog"
)

// pciHardware is the PCI functions of this host, through vfio.
type pciHardware struct {
	dir string // of the journal of claims
	log *slog.Logger
	bus *pci.Bus
	// container makes the domain of a group; nil: the kernel's.
	container func(group int) (vfio.Container, error)

	mu sync.Mutex
	// +checklocks:mu
	claimer *pci.Claimer // nil before Prepare
}

// NewHardware returns this host's hardware. It notes claims in dir, which has to outlive a
// crash.
func NewHardware(dir string, log *slog.Logger) Hardware {
	return &pciHardware{dir: dir, log: log, bus: &pci.Bus{}}
}

// Prepare implements Hardware.
func (h *pciHardware) Prepare(functions []FunctionPolicy, all bool) (found []string, err error) {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of claims: %w", err)
	}

	claimer, err := pci.NewClaimer(h.bus, h.dir)
	if err != nil {
		return nil, err
	}

	h.mu.Lock()
	h.claimer = claimer
	h.mu.Unlock()
	var wanted []pci.Address
	for _, f := range functions {
		a, err := pci.ParseAddress(f.Address)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, a)
	}

	if all {
		candidates, err := h.candidates()
		if err != nil {
			return nil, err
		}
		for _, a := range candidates {
			if !slices.Contains(wanted, a) {
				wanted = append(wanted, a)
				found = append(found, a.String())
			}
		}
	}

	left, err := claimer.Reconcile(wanted)
	for _, c := range left.Adopted {
		h.log.Info("took over a function that an earlier device-manager had claimed", "address", c.Address, "formerDriver", c.Former)
	}

	for _, c := range left.Released {
		h.log.Info("gave back a function that an earlier device-manager had claimed", "address", c.Address, "driver", c.Former)
	}

	for _, c := range left.Dropped {
		h.log.Warn("left a function alone that an earlier device-manager had claimed", "address", c.Address, "formerDriver", c.Former, "why", c.Why)
	}

	if err != nil { // a wanted function fails again when it is opened
		h.log.Warn("clear up after an earlier device-manager", "err", err)
	}

	return found, preflight(functions)
}

// candidates returns the functions that this service supports.
func (h *pciHardware) candidates() (found []pci.Address, err error) {
	functions, err := h.bus.List()
	for _, f := range functions {
		if f.Class.Candidate() {
			found = append(found, f.Address)
		}
	}
	if err != nil { // one that cannot be read
		h.log.Warn("list PCI functions", "err", err)
	}
	return found, nil
}

// preflight checks, before a function is claimed, that the host has what the functions need.
func preflight(functions []FunctionPolicy) error {
	var want iommu.Want
	needed := false
	for _, f := range functions {
		want.Bytes += min(f.MemoryBytes, 1<<50) // so that the sum does not overflow
		want.Entries = max(want.Entries, f.IOVAEntries)
		needed = needed || !f.Optional
	}
	if !needed {
		return nil
	}
	return iommu.Refused(iommu.Preflight(iommu.Options{}, want))
}

// Open implements Hardware.
func (h *pciHardware) Open(p FunctionPolicy, o iommu.Observer) (Function, error) {
	h.mu.Lock()
	claimer := h.claimer
	h.mu.Unlock()
	a, err := pci.ParseAddress(p.Address)
	if err != nil {
		return nil, err
	}

	before := claimer.Claimed(a)
	claim, err := claimer.Claim(a)
	if err != nil {
		return nil, err
	}

	f, err := h.open(a, p, o)
	if before && errors.Is(err, gpuerr.Busy) {
		// Another process uses a function that an earlier manager has claimed; perhaps a
		// process of that manager. The function is left to it. The claim stays in the
		// journal.
		return nil, err
	}

	if err != nil {
		_, undo := claimer.Release(a)
		return nil, errors.Join(err, undo)
	}

	h.log.Info("claimed", "address", a, "formerDriver", claim.Former)
	return &claimedFunction{Function: f, release: func() error {
		driver, err := claimer.Release(a)
		if err == nil {
			h.log.Info("released", "address", a, "driver", driver)
		}
		return err
	}}, nil
}

func (h *pciHardware) open(a pci.Address, p FunctionPolicy, o iommu.Observer) (*vfio.Function, error) {
	return vfio.Open(vfio.Options{Address: a, Windows: p.Windows, Vectors: p.Vectors, Observer: o, Bus: h.bus, Container: h.container})
}

// Close implements Hardware.
func (h *pciHardware) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claimer == nil {
		return nil
	}
	return h.claimer.Close()
}

// Faults implements Hardware.
func (h *pciHardware) Faults(sink func(faultlog.Fault)) (FaultSource, error) {
	return faultlog.Open(sink, faultlog.Options{})
}

// claimedFunction goes back to its former driver when it is closed.
type claimedFunction struct {
	*vfio.Function
	release func() error

	once sync.Once
	err  error
}

// Close implements Function. A function that could not be stopped stays with vfio-pci for the
// next manager: no driver of the host gets a device in an unknown state.
func (f *claimedFunction) Close() error {
	f.once.Do(func() {
		if f.err = f.Function.Close(); f.err == nil {
			f.err = f.release()
		}
	})
	return f.err
}

// dmaBits returns how many address bits a function has, as far as is known.
func dmaBits(info ddf.DeviceInfo) int { return pci.DMABits(info.VendorID, info.DeviceID) }

// HostFunction is a PCI function of this host, as in the output of device-manager
// --list-functions.
type HostFunction struct {
	Address   string   `json:"address"`
	ID        string   `json:"id"` // vendor and device
	Class     string   `json:"class"`
	Driver    string   `json:"driver,omitempty"`
	Group     int      `json:"iommuGroup"` // -1: none
	Resets    []string `json:"resets"`
	BARBytes  []uint64 `json:"barBytes"` // of the memory BARs
	Candidate bool     `json:"candidate"`
	// Refusal is why the function cannot be claimed now; empty if it can.
	Refusal string `json:"refusal,omitempty"`
}

// HostFunctions lists the functions of this host that could be claimed, by address: all but
// bridges. The error names those that cannot be read.
func HostFunctions() (all []HostFunction, err error) {
	bus := &pci.Bus{}
	functions, err := bus.List()
	for _, f := range functions {
		if f.Class.Base() == pci.BaseBridge {
			continue
		}
		h := HostFunction{
			Address: f.Address.String(), ID: f.ID(), Class: f.Class.String(), Driver: f.Driver, Group: f.Group,
			Resets: f.Resets, Candidate: f.Class.Candidate(),
		}
		for _, b := range f.BARs {
			if b.Memory {
				h.BARBytes = append(h.BARBytes, b.Bytes)
			}
		}
		if f.Group == pci.NoGroup {
			h.Refusal = "no IOMMU stands before it (docs/passthrough.md)"
		} else if refusal := bus.CheckGroup(f); refusal != nil {
			h.Refusal = gpuerr.From(refusal).Error()
		} else if f.BootVGA && f.Driver != "" && f.Driver != pci.Driver {
			h.Refusal = "it shows this host's console"
		}
		all = append(all, h)
	}

	return all, err
}
