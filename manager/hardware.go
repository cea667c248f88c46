package manager

import (
	"capgpu/ddf"
	"capgpu/iommu"
)

// Function is one PCI function as the manager holds it, from its claim to its
// release, or what stands in for one. Drivers come and go meanwhile: Begin and
// Quiesce are the ends of each one's time. ddf/vfio has the real one.
//
//	idle ──Begin──► live ──Quiesce──► idle … ──Close──► released
type Function interface {
	// Identity is what there is to say about it without an epoch: PCIAddress,
	// VendorID, DeviceID, Fake.
	Identity() ddf.DeviceInfo
	// Domain is the function's address space. It stays through all epochs.
	Domain() iommu.Domain
	// Windows are what is granted of its BARs.
	Windows() []ddf.WindowSpec
	// WindowFD returns a descriptor of window i that the caller owns, and where in it
	// the window begins. gpuerr.Denied where the window can only be reached by calls.
	WindowFD(i int) (fd int, offset uint64, err error)
	// Load32 and Store32 reach a register of window i. The caller has checked that
	// off is one, and what the grant allows.
	Load32(i int, off uint64) (uint32, error)
	Store32(i int, off uint64, v uint32) error
	// Vectors is how many interrupt vectors are granted.
	Vectors() int
	// EventFD returns a descriptor of the vector's eventfd that the caller owns.
	EventFD(vector int) (int, error)
	// SetMask stops and resumes a vector. What comes while it is masked is not lost:
	// the eventfd tells at the unmask.
	SetMask(vector int, masked bool) error
	// Interrupts counts what each vector has raised since the function was opened, as
	// the kernel sees it; nil where nobody counts.
	Interrupts() []uint64

	// Begin resets the function, arms its vectors and lets it be bus master. reset
	// names how it was reset: "flr", "bus", "pm", …, or "none: bus mastering off". When
	// it fails, the function is off the bus, or the error is vfio.ErrNotStopped, too.
	Begin() (reset string, err error)
	// Quiesce stops the function: when it returns nil, no DMA of it is under way and
	// none will come, and no interrupt. It returns how it was stopped.
	Quiesce() (how string, err error)
	// Removed is closed when the host takes the function away, or it has left the bus;
	// Cause says which.
	Removed() <-chan struct{}
	Cause() error
	// Trouble tells of an error that the function has reported without having gone. What
	// it does until the next Begin, which resets it, is not to be relied upon; trouble of
	// before that is not told after it. nil: nobody tells.
	Trouble() <-chan error
	// Close quiesces the function and gives it back. After an unplug it is what the
	// host waits for.
	Close() error
}
