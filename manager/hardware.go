package manager

import (
	"capgpu/ddf"
	"capgpu/iommu"
)

// Function is one PCI function that the manager holds, from its claim to its release, or a
// stand-in for one. Drivers come and go meanwhile: the time of each begins with Begin and
// ends with Quiesce. ddf/vfio has the real one.
//
//	idle ──Begin──► live ──Quiesce──► idle … ──Close──► released
type Function interface {
	// Identity returns the fields that do not depend on an epoch: PCIAddress, VendorID,
	// DeviceID, Fake.
	Identity() ddf.DeviceInfo
	// Domain returns the function's address space, which stays through all epochs.
	Domain() iommu.Domain
	// Windows returns the granted parts of its BARs.
	Windows() []ddf.WindowSpec
	// WindowFD returns a descriptor of window i, which the caller owns, and the offset of the
	// window in it. It returns gpuerr.Denied if the window is reachable only by calls.
	WindowFD(i int) (fd int, offset uint64, err error)
	// Load32 and Store32 access a register of window i. The caller has checked off and the
	// grant.
	Load32(i int, off uint64) (uint32, error)
	Store32(i int, off uint64, v uint32) error
	// Vectors returns the number of granted interrupt vectors.
	Vectors() int
	// EventFD returns a descriptor of the vector's eventfd that the caller owns.
	EventFD(vector int) (int, error)
	// SetMask stops and resumes a vector. An interrupt that comes while it is masked is not
	// lost: the unmask signals the eventfd.
	SetMask(vector int, masked bool) error
	// Interrupts returns how often each vector was raised since the function was opened, as
	// the kernel counts, or nil without a count.
	Interrupts() []uint64

	// Begin resets the function, arms its vectors and lets it be bus master. reset names the
	// kind of reset: "flr", "bus", "pm", …, or "none: bus mastering off". If Begin fails, the
	// function is off the bus, or the error is vfio.ErrNotStopped as well.
	Begin() (reset string, err error)
	// Quiesce stops the function. When it returns nil, no DMA of the function is under way,
	// and no DMA and no interrupt will follow. how names the way it was stopped.
	Quiesce() (how string, err error)
	// Removed is closed when the host takes the function away or it has left the bus; Cause
	// tells which.
	Removed() <-chan struct{}
	Cause() error
	// Trouble delivers an error that the function has reported without leaving the bus. Until
	// the next Begin, which resets it, the function is not reliable. Begin discards earlier
	// errors. nil: none is reported.
	Trouble() <-chan error
	// Close quiesces the function and gives it back. An unplug by the host waits for it.
	Close() error
}
