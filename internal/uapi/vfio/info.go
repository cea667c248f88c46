package vfio

import (
	"encoding/binary"
	"fmt"

	"capgpu/gpuerr"
)

const (
	// infoBytes is the first size that an answer is asked for in.
	infoBytes = 512
	// maxInfoBytes bounds what a kernel can make this process allocate.
	maxInfoBytes = 1 << 20
	capBytes     = 8 // CapHeader
)

// IOMMU is what a container says about its IOMMU.
type IOMMU struct {
	PageBytes uint64      // sizes that are one entry, as a bit mask
	Ranges    []IOVARange // where mappings may lie; nil: the kernel does not say
	// Available is how many more mappings there can be; only with HasAvailable.
	Available    uint32
	HasAvailable bool
}

// ReadIOMMU asks a container about its IOMMU.
func ReadIOMMU(k Kernel, container int) (IOMMU, error) {
	b, err := answer(func(b []byte) error { return k.IOMMUInfo(container, b) })
	if err != nil {
		return IOMMU{}, Error("ask about the IOMMU", err)
	}
	return ParseIOMMU(b)
}

// ParseIOMMU reads the answer to IOMMUGetInfo.
func ParseIOMMU(b []byte) (IOMMU, error) {
	var info IOMMU
	head, err := words(b, 6)
	if err != nil {
		return info, err
	}

	flags := head[1]
	if flags&IOMMUInfoPgsizes == 0 {
		return info, malformed("the IOMMU does not tell its page sizes")
	}

	info.PageBytes = binary.NativeEndian.Uint64(b[8:])
	if flags&IOMMUInfoCaps == 0 {
		return info, nil
	}

	err = eachCap(b, head[4], 20, func(h CapHeader, body []byte) error {
		switch h.ID {
		case IOMMUCapIOVARange:
			entries, err := array(body, 16)
			if err != nil {
				return err
			}
			info.Ranges = make([]IOVARange, 0, len(entries)/16)
			for ; len(entries) > 0; entries = entries[16:] {
				r := IOVARange{binary.NativeEndian.Uint64(entries), binary.NativeEndian.Uint64(entries[8:])}
				if r.End < r.Start {
					return malformed("range of addresses ends at %#x, before its start %#x", r.End, r.Start)
				}
				info.Ranges = append(info.Ranges, r)
			}
		case IOMMUCapDMAAvail:
			w, err := words(body, 1)
			if err != nil {
				return err
			}
			info.Available, info.HasAvailable = w[0], true
		}
		return nil
	})
	return info, err
}

// Region is what a device says about one of its regions.
type Region struct {
	RegionInfo
	// Areas are what can be mapped, where that is not all of it.
	Areas  []MmapArea
	Sparse bool // Areas counts, even if it is empty
	// MSIXMappable: the page of the MSI-X table can be mapped with the rest.
	MSIXMappable bool
}

// ReadRegion asks a device about a region.
func ReadRegion(k Kernel, device int, index uint32) (Region, error) {
	b, err := answer(func(b []byte) error { return k.RegionInfo(device, index, b) })
	if err != nil {
		return Region{}, Error(fmt.Sprintf("ask about region %d", index), err)
	}
	return ParseRegion(b)
}

// ParseRegion reads the answer to DeviceGetRegionInfo.
func ParseRegion(b []byte) (Region, error) {
	var r Region
	head, err := words(b, 8)
	if err != nil {
		return r, err
	}

	r.RegionInfo = RegionInfo{
		Argsz: head[0], Flags: head[1], Index: head[2], CapOffset: head[3],
		Size: binary.NativeEndian.Uint64(b[16:]), Offset: binary.NativeEndian.Uint64(b[24:]),
	}
	if r.Flags&RegionCaps == 0 {
		return r, nil
	}

	err = eachCap(b, r.CapOffset, 32, func(h CapHeader, body []byte) error {
		switch h.ID {
		case RegionCapSparseMmap:
			entries, err := array(body, 16)
			if err != nil {
				return err
			}
			r.Sparse, r.Areas = true, make([]MmapArea, 0, len(entries)/16)
			for ; len(entries) > 0; entries = entries[16:] {
				a := MmapArea{binary.NativeEndian.Uint64(entries), binary.NativeEndian.Uint64(entries[8:])}
				if a.Offset > r.Size || a.Size > r.Size-a.Offset {
					return malformed("area %#x+%#x lies outside its region of %#x bytes", a.Offset, a.Size, r.Size)
				}
				r.Areas = append(r.Areas, a)
			}
		case RegionCapMSIXMappable:
			r.MSIXMappable = true
		}
		return nil
	})
	return r, err
}

// answer asks for a structure that tells by its argsz how large it would be.
func answer(ask func(b []byte) error) ([]byte, error) {
	n := infoBytes
	for {
		b := make([]byte, n)
		if err := ask(b); err != nil {
			return nil, err
		}
		want := binary.NativeEndian.Uint32(b)
		if uint64(want) <= uint64(n) {
			return b, nil
		}
		n = max(2*n, int(min(want, maxInfoBytes+1)))
		if n > maxInfoBytes {
			return nil, malformed("an answer of more than %d bytes", maxInfoBytes)
		}
	}
}

// eachCap walks the chain of capabilities of an answer. headBytes is where the
// fixed part of the answer ends. Each link leads forward, so that the walk ends.
func eachCap(b []byte, off, headBytes uint32, visit func(h CapHeader, body []byte) error) error {
	for last := headBytes - 1; off != 0; {
		if off <= last || uint64(off)+capBytes > uint64(len(b)) {
			return malformed("capability at offset %d of %d bytes, after %d", off, len(b), last)
		}
		h := b[off:]
		hdr := CapHeader{binary.NativeEndian.Uint16(h), binary.NativeEndian.Uint16(h[2:]), binary.NativeEndian.Uint32(h[4:])}
		if err := visit(hdr, h[capBytes:]); err != nil {
			return err
		}
		last, off = off, hdr.Next
	}
	return nil
}

// array is the entries behind {count, reserved uint32}.
func array(body []byte, entryBytes int) ([]byte, error) {
	w, err := words(body, 2)
	if err != nil {
		return nil, err
	}
	body = body[8:]
	if uint64(w[0]) > uint64(len(body)/entryBytes) {
		return nil, malformed("a list of %d entries of %d bytes in %d bytes", w[0], entryBytes, len(body))
	}
	return body[:int(w[0])*entryBytes], nil
}

func words(b []byte, n int) ([]uint32, error) {
	if len(b) < 4*n {
		return nil, malformed("%d bytes where %d were to come", len(b), 4*n)
	}
	w := make([]uint32, n)
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w, nil
}

func malformed(format string, args ...any) error {
	return gpuerr.New(gpuerr.IO, "vfio: the kernel's answer is malformed: "+format, args...)
}
