package vfio

import (
	"errors"
	"sync"
	"time"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/pci"
	uapi "capgpu/internal/uapi/vfio"
	"capgpu/iommu"
)

// Container is the domain of a function, which also opens its device.
// iommu.OpenType1 makes one.
type Container interface {
	iommu.Domain
	// Device returns the descriptor of the device at a PCI address. It belongs to the
	// container, which closes it with itself.
	Device(address string) (fd int, err error)
}

// Options say which function to open, and what of it is granted.
type Options struct {
	Address pci.Address
	// Windows are granted. nil: of each memory BAR all that can be, writable. Empty: no
	// register is.
	Windows []ddf.WindowSpec
	// Vectors is how many MSI-X or MSI vectors are granted.
	Vectors int
	// Observer gets every operation of the domain; may be nil.
	Observer iommu.Observer

	// Container makes the domain of an IOMMU group; nil: iommu.OpenType1 does.
	Container func(group int) (Container, error)

	Bus    *pci.Bus    // nil: the host's
	Kernel uapi.Kernel // nil: the kernel itself
	Proc   string      // where procfs is; "/proc" when empty
}

// Function is one PCI function under vfio. Its methods may be called from any
// goroutine.
type Function struct {
	identity  ddf.DeviceInfo
	container Container
	kernel    uapi.Kernel
	proc      string
	fd        int // of the device; the container's
	config    config
	windows   []*window
	resets    bool   // the kernel can reset it
	resetName string // how
	settle    time.Duration
	irqIndex  uint32 // IRQIndexMSIX or IRQIndexMSI
	removal   removal

	// opMu serialises acts upon the function.
	opMu sync.Mutex
	// +checklocks:opMu
	state state
	// +checklocks:opMu
	vectors []*vector // nil but while live, or where they could not be disarmed
	// +checklocks:opMu
	counts []irqCount
	// +checklocks:opMu
	quiesced time.Time // when it was stopped; zero: never since it was opened
	// +checklocks:opMu
	stopped string // how, if it is
	// +checklocks:opMu
	closeErr error

	vectorCount int
}

type state uint8

const (
	idle state = iota
	live
	closed
)

// Open opens a function that is bound to vfio-pci. It is not on the bus until Begin.
func Open(o Options) (f *Function, err error) {
	if o.Bus == nil {
		o.Bus = &pci.Bus{}
	}
	if o.Kernel == nil {
		o.Kernel = uapi.System{}
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}

	if o.Container == nil {
		o.Container = func(group int) (Container, error) {
			return iommu.OpenType1(group, iommu.Options{Kernel: o.Kernel, Observer: o.Observer, Proc: o.Proc})
		}
	}

	if o.Vectors < 0 || o.Vectors > maxVectors {
		return nil, gpuerr.New(gpuerr.Invalid, "vectors: %d is not 0 to %d", o.Vectors, maxVectors)
	}

	is, err := o.Bus.Function(o.Address)
	if err != nil {
		return nil, err
	}
	if is.Driver != pci.Driver {
		return nil, gpuerr.New(gpuerr.Denied, "%s is driven by %q, not by vfio-pci: claim it first", o.Address, is.Driver)
	}
	if err := o.Bus.CheckGroup(is); err != nil {
		return nil, err
	}

	container, err := o.Container(is.Group)
	if err != nil {
		return nil, err
	}

	f = &Function{
		identity:    ddf.DeviceInfo{PCIAddress: o.Address.String(), VendorID: is.Vendor, DeviceID: is.Device},
		container:   container,
		kernel:      o.Kernel,
		proc:        o.Proc,
		fd:          -1,
		settle:      pci.Settle(is.Vendor, is.Device),
		vectorCount: o.Vectors,
		counts:      make([]irqCount, o.Vectors),
		removal:     newRemoval(),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
			f = nil
		}
	}()

	if f.fd, err = container.Device(o.Address.String()); err != nil {
		return f, err
	}

	info, err := f.kernel.DeviceInfo(f.fd)
	if err != nil {
		return f, uapi.Error("ask about "+o.Address.String(), err)
	}
	if info.Flags&uapi.DevicePCI == 0 || info.NumRegions <= uapi.RegionConfig {
		return f, gpuerr.New(gpuerr.IO, "vfio does not offer %s as a PCI device", o.Address)
	}

	f.resets, f.resetName = info.Flags&uapi.DeviceReset != 0, "by the kernel's choice"
	if len(is.Resets) > 0 {
		f.resetName = is.Resets[0] // the kernel takes the first that works
	}
	if f.config, err = openConfig(f.kernel, f.fd); err != nil {
		return f, err
	}

	// The kernel has reset it if it can be, as this is the first descriptor of it
	// (vfio_pci_core_enable); what cannot be reset may be on the bus still.
	if err := f.busMaster(false); err != nil {
		return f, err
	}

	f.opMu.Lock()
	f.stopped = noReset
	f.opMu.Unlock()
	if f.irqIndex, err = f.chooseVectors(info.NumIRQs); err != nil {
		return f, err
	}
	if err := f.openWindows(o.Windows); err != nil {
		return f, err
	}

	return f, f.watchRemoval(info.NumIRQs)
}

// Identity is PCIAddress, VendorID and DeviceID; the rest is the manager's.
func (f *Function) Identity() ddf.DeviceInfo { return f.identity }

// Domain is the function's address space. It stays through all epochs.
func (f *Function) Domain() iommu.Domain { return f.container }

// Vectors is how many interrupt vectors are granted.
func (f *Function) Vectors() int { return f.vectorCount }
