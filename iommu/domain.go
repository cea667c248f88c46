// Package iommu keeps a device's DMA inside what it was granted.
//
// A Domain is the address space that a device sees; a Space hands out its
// addresses. The kernel's interfaces behind a Domain are of this package, too:
// vfio's type1 now, with room for iommufd beside it. Preflight says what a host
// lacks before a function is taken, an Observer compares the requests to the kernel with its
// actions (package trace), and Fake is a Domain without an IOMMU.
//
// Trust: the device is not trusted. It reaches the mapped memory and nothing else; the kernel
// refuses and logs every other access (package faultlog). The kernel is trusted as far as its
// word goes: an unmap that fails, or takes another length than requested, loses the domain,
// and no page of it may be used again. The caller is trusted: it keeps the memory charged,
// and does not reuse it, until Unmap has returned nil.
//
// Locks: Type1.mu is held for reading by every call into the kernel, and for writing by
// Close; Type1.devicesMu and the lock of a Fake are leaves. A Space has none: its owner locks
// it.
//
// Nothing survives Close, unless Close says so (Type1.Close).
package iommu

// IOVA is an address as the device sees it.
type IOVA uint64

// Range is [Start, End).
type Range struct{ Start, End IOVA }

// Bytes is the length of the range.
func (r Range) Bytes() uint64 { return uint64(r.End - r.Start) }

// Access is the right of the device to a mapping.
type Access uint8

const (
	Read      Access = 1 << iota // the device may read the memory
	Write                        // the device may write it
	ReadWrite = Read | Write
)

// Domain is the address space of one device, or of devices that are granted
// together. Its methods may be called from any goroutine.
type Domain interface {
	// Ranges are where mappings may lie, in order.
	Ranges() []Range
	// PageBytes are the sizes that the IOMMU maps in one entry, as a bit mask. A mapping is
	// cheaper if its address, memory and length are multiples of a larger size.
	PageBytes() uint64
	// Entries is how many mappings there can be at once.
	Entries() uint64
	// Map lets the device reach host, a mapping of shared memory, at iova. All of it is
	// resident and pinned when Map returns. host and iova are multiples of the smallest page.
	// The pages stay the device's until Unmap, even if host is unmapped. Errors:
	// gpuerr.Invalid for a range that is not whole pages, outside Ranges or mapped already,
	// gpuerr.Quota for more than Entries (iovaEntries) and for more than may be pinned
	// (hostMemory), gpuerr.DeviceLost, gpuerr.Closed, or the kernel's. After an error nothing
	// is mapped.
	Map(iova IOVA, host []byte, access Access) error
	// Unmap takes a mapping back, of the address and length that it was made with. When it
	// returns nil, the device does not reach the memory any more. After an error the domain
	// is lost, and its mappings are unknown.
	Unmap(iova IOVA, bytes uint64) error
	// Lost is why the domain cannot be relied on any more, or nil. It stays lost.
	Lost() error
	// Close takes the device out and every mapping away.
	Close() error
}
