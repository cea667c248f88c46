// Package iommu keeps a device's DMA inside what it was granted.
//
// A Domain is the address space that a device sees; a Space hands out its
// addresses. The kernel's interfaces behind a Domain are of this package, too:
// vfio's type1 now, with room for iommufd beside it.
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
	Read Access = 1 << iota
	Write
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
	// host.
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
