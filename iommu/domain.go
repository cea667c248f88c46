// Package iommu keeps a device's DMA inside what it was granted.
//
// A Domain is the address space that a device sees; a Space hands out its
// addresses. The kernel's interfaces behind a Domain are of this package, too:
// vfio's type1 now, with room for iommufd beside it. Preflight says what a host
// lacks before anything is taken, Observer is how what was asked of the kernel is
// compared with what it did (package trace), and Fake is a Domain without an IOMMU.
//
// Who is trusted: not the device. It reaches what is mapped and nothing else; what it
// tries beside that the kernel refuses and logs (package faultlog). The kernel is, as
// far as its word goes: an unmap that fails, or takes another length than was asked,
// loses the domain, and no page of it may be used again. The caller is: it keeps the
// memory charged, and hands it to nobody, until Unmap has returned nil.
//
// Locks: Type1.mu is held for reading by every call into the kernel, and for writing
// by Close; Type1.devicesMu and the lock of a Fake are leaves. A Space has none: who
// owns it has.
//
// What survives Close: nothing, unless Close says so (Type1.Close).
package iommu

// IOVA is an address as the device sees it.
type IOVA uint64

// Range is [Start, End).
type Range struct{ Start, End IOVA }

// Bytes is the length of the range.
func (r Range) Bytes() uint64 { return uint64(r.End - r.Start) }

// Access is what the device may do with a mapping.
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
	// PageBytes are the sizes that the IOMMU maps in one entry, as a bit mask: a
	// mapping whose address, memory and length are multiples of a larger one is
	// cheaper.
	PageBytes() uint64
	// Entries is how many mappings there can be at once.
	Entries() uint64
	// Map lets the device reach host, a mapping of shared memory, at iova. All of
	// it is resident and pinned when Map returns. host and iova are multiples of the
	// smallest page. The pages stay the device's until Unmap, whatever becomes of
	// host. Errors: gpuerr.Invalid for what is no whole pages, outside Ranges or
	// mapped already, gpuerr.Quota for more than Entries (iovaEntries) and for more
	// than may be pinned (hostMemory), gpuerr.DeviceLost, gpuerr.Closed, or the
	// kernel's. Then nothing is mapped.
	Map(iova IOVA, host []byte, access Access) error
	// Unmap takes a mapping back, of the address and length that it was made with.
	// When it returns nil, the device does not reach the memory any more. On an
	// error the domain is lost: nothing can be said about what is mapped.
	Unmap(iova IOVA, bytes uint64) error
	// Lost is why the domain cannot be relied on any more, or nil. It stays lost.
	Lost() error
	// Close takes the device out and every mapping away.
	Close() error
}
