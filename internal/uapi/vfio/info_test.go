package vfio

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// words32 is an answer of 32-bit words.
func words32(words ...uint32) []byte {
	var b []byte
	for _, w := range words {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

// goodIOMMU is the answer of QEMU's intel-iommu under Linux 6.12, with 7 mappings made.
func goodIOMMU() []byte {
	return words32(
		104, IOMMUInfoPgsizes|IOMMUInfoCaps, 0x40201000, 0, 24, 0,
		1<<16|IOMMUCapMigration, 56, 0, 0, 4096, 0, 1<<28, 0, // at 24
		1<<16|IOMMUCapIOVARange, 104, 2, 0, 0, 0, 0xfedfffff, 0, 0xfef00000, 0, 0xffffffff, 0x7f, // at 56
		1<<16|IOMMUCapDMAAvail, 0, 65528) // at 104
}

func TestParseIOMMU(t *testing.T) {
	info, err := ParseIOMMU(goodIOMMU())
	require.NoError(t, err)
	require.Equal(t, IOMMU{
		PageBytes: 0x40201000, Ranges: []IOVARange{{0, 0xfedfffff}, {0xfef00000, 0x7fffffffff}},
		Available: 65528, HasAvailable: true,
	}, info)

	// A kernel without capabilities (before 4.17).
	info, err = ParseIOMMU(words32(16, IOMMUInfoPgsizes, 0x1000, 0, 0, 0))
	require.NoError(t, err)
	require.Equal(t, IOMMU{PageBytes: 0x1000}, info)
}

func TestParseIOMMURefuses(t *testing.T) {
	const nextOfMigration, countOfRanges = 24 + 4, 56 + 8
	for name, spoil := range map[string]func(b []byte) []byte{
		"nothing":              func([]byte) []byte { return nil },
		"short":                func(b []byte) []byte { return b[:23] },
		"cut in a capability":  func(b []byte) []byte { return b[:108] },
		"cut in a body":        func(b []byte) []byte { return b[:112] },
		"no page sizes":        func(b []byte) []byte { b[4] = IOMMUInfoCaps; return b },
		"a loop":               func(b []byte) []byte { b[nextOfMigration] = 24; return b },
		"a chain into head":    func(b []byte) []byte { b[16] = 8; return b },
		"a wild offset":        func(b []byte) []byte { b[nextOfMigration+3] = 0xff; return b },
		"at the very end":      func(b []byte) []byte { b[nextOfMigration] = byte(len(b) - 4); return b },
		"too many ranges":      func(b []byte) []byte { b[countOfRanges] = 4; return b },
		"far too many ranges":  func(b []byte) []byte { b[countOfRanges+3] = 0xff; return b },
		"a range ends too low": func(b []byte) []byte { b[56+16+7] = 1; return b },
	} {
		_, err := ParseIOMMU(spoil(goodIOMMU()))
		require.ErrorIs(t, err, gpuerr.IO, name)
	}
}

// A BAR with the MSI-X table in its second page.
func goodRegion() []byte {
	return words32(
		88, RegionRead|RegionWrite|RegionMmap|RegionCaps, 2, 32, 0x4000, 0, 0, 2<<8,
		1<<16|RegionCapSparseMmap, 80, 2, 0, 0, 0, 0x1000, 0, 0x2000, 0, 0x2000, 0, // at 32
		1<<16|RegionCapMSIXMappable, 0) // at 80
}

func TestParseRegion(t *testing.T) {
	r, err := ParseRegion(goodRegion())
	require.NoError(t, err)
	require.Equal(t, Region{
		RegionInfo: RegionInfo{88, RegionRead | RegionWrite | RegionMmap | RegionCaps, 2, 32, 0x4000, 2 << 40},
		Areas:      []MmapArea{{0, 0x1000}, {0x2000, 0x2000}}, Sparse: true, MSIXMappable: true,
	}, r)
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":              func(b []byte) []byte { return b[:31] },
		"a chain into head":  func(b []byte) []byte { b[12] = 24; return b },
		"a loop":             func(b []byte) []byte { b[36] = 32; return b },
		"too many areas":     func(b []byte) []byte { b[40] = 9; return b },
		"an area outside":    func(b []byte) []byte { b[32+16+16+1] = 0x30; return b },
		"an area wraps":      func(b []byte) []byte { b[32+16+16+15] = 0xff; return b },
		"an area far behind": func(b []byte) []byte { b[32+16+7] = 0xff; return b },
	} {
		_, err := ParseRegion(spoil(goodRegion()))
		require.ErrorIs(t, err, gpuerr.IO, name)
	}
}

// kernel gives the answers of a test.
type kernel struct {
	Kernel
	iommu  func(b []byte) error
	region func(index uint32, b []byte) error
}

func (k kernel) IOMMUInfo(_ int, b []byte) error                { return k.iommu(b) }
func (k kernel) RegionInfo(_ int, index uint32, b []byte) error { return k.region(index, b) }

// An answer that does not fit is asked for again, and there is an end to it.
func TestAnswersGrow(t *testing.T) {
	var sizes []int
	info, err := ReadIOMMU(kernel{iommu: func(b []byte) error {
		sizes = append(sizes, len(b))
		if len(b) < 5000 { // the kernel leaves the chain out, but for the flag
			copy(b, words32(5000, IOMMUInfoPgsizes|IOMMUInfoCaps, 0x1000, 0, 0, 0))
			return nil
		}
		copy(b, goodIOMMU())
		return nil
	}}, 3)
	require.NoError(t, err)
	require.Len(t, info.Ranges, 2)
	require.Equal(t, []int{infoBytes, 5000}, sizes)

	sizes = nil
	_, err = ReadIOMMU(kernel{iommu: func(b []byte) error {
		sizes = append(sizes, len(b))
		binary.NativeEndian.PutUint32(b, ^uint32(0))
		return nil
	}}, 3)
	require.ErrorIs(t, err, gpuerr.IO)
	require.Less(t, len(sizes), 20)

	r, err := ReadRegion(kernel{region: func(index uint32, b []byte) error {
		require.EqualValues(t, 2, index)
		copy(b, goodRegion())
		return nil
	}}, 3, 2)
	require.NoError(t, err)
	require.True(t, r.Sparse)
	_, err = ReadRegion(kernel{region: func(uint32, []byte) error { return unix.EINVAL }}, 3, 11)
	require.ErrorIs(t, err, unix.EINVAL)
	require.ErrorContains(t, err, "region 11")
}

// An answer of any form at most fails; an accepted one is within bounds.
func FuzzAnswers(f *testing.F) {
	f.Add(goodIOMMU())
	f.Add(goodRegion())
	f.Fuzz(func(t *testing.T, b []byte) {
		if info, err := ParseIOMMU(b); err == nil {
			if 16*len(info.Ranges) > len(b) {
				t.Fatalf("%x has %d ranges", b, len(info.Ranges))
			}
			for _, r := range info.Ranges {
				if r.Start > r.End {
					t.Fatalf("%x: %+v", b, r)
				}
			}
		}
		if r, err := ParseRegion(b); err == nil {
			if 16*len(r.Areas) > len(b) {
				t.Fatalf("%x has %d areas", b, len(r.Areas))
			}
			for _, a := range r.Areas {
				if a.Size > r.Size || a.Offset > r.Size-a.Size {
					t.Fatalf("%x: %+v of %d bytes", b, a, r.Size)
				}
			}
		}
	})
}
