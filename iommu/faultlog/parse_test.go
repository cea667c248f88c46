package faultlog

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// lines are real ones, and their meaning.
var lines = []struct {
	text string
	want Fault
}{
	{"DMAR: [DMA Write NO_PASID] Request device [00:01.0] fault addr 0x900000 [fault reason 0x05] PTE Write access is not set",
		Fault{Address: "0000:00:01.0", AnySegment: true, IOVA: 0x900000, Write: true, Reason: "PTE Write access is not set"}},
	{"DMAR: [DMA Read NO_PASID] Request device [fe:1f.7] fault addr 0xfffffffffffff000 [fault reason 0x06] PTE Read access is not set",
		Fault{Address: "0000:fe:1f.7", AnySegment: true, IOVA: 0xfffffffffffff000, Reason: "PTE Read access is not set"}},
	{"DMAR: [DMA Write PASID 0x1] Request device [03:00.1] fault addr 0x0 [fault reason 0x59] SM: Present bit in PASID Table Entry is clear",
		Fault{Address: "0000:03:00.1", AnySegment: true, Write: true, Reason: "SM: Present bit in PASID Table Entry is clear"}},
	{"DMAR: [DMA Read NO_PASID] Request device [0x00:0x01.0] fault addr 0x1000 [fault reason 0x06] PTE Read access is not set",
		Fault{Address: "0000:00:01.0", AnySegment: true, IOVA: 0x1000, Reason: "PTE Read access is not set"}},
	{"DMAR: [DMA Read] Request device [00:02.0] PASID ffffffff fault addr 7c200000 [fault reason 06] PTE Read access is not set",
		Fault{Address: "0000:00:02.0", AnySegment: true, IOVA: 0x7c200000, Reason: "PTE Read access is not set"}},
	{"DMAR: [DMA Write] Request device [02:00.0] fault addr 9a2c6000 [fault reason 05] PTE Write access is not set",
		Fault{Address: "0000:02:00.0", AnySegment: true, IOVA: 0x9a2c6000, Write: true, Reason: "PTE Write access is not set"}},
	{"vfio-pci 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000d address=0x900000 flags=0x0020]",
		Fault{Address: "0000:01:00.0", IOVA: 0x900000, Write: true, Reason: "IO_PAGE_FAULT domain=0xd flags=0x20"}},
	{"AMD-Vi: Event logged [IO_PAGE_FAULT device=0001:03:00.0 domain=0x0000 address=0xffffff00 flags=0x0000]",
		Fault{Address: "0001:03:00.0", IOVA: 0xffffff00, Reason: "IO_PAGE_FAULT domain=0x0 flags=0x0"}},
	{"AMD-Vi: Event logged [IO_PAGE_FAULT device=03:00.0 domain=0x0001 address=0x10 flags=0x0030]",
		Fault{Address: "0000:03:00.0", AnySegment: true, IOVA: 0x10, Write: true, Reason: "IO_PAGE_FAULT domain=0x1 flags=0x30"}},
}

func TestLines(t *testing.T) {
	for _, l := range lines {
		got, ok := parseLine(l.text)
		require.True(t, ok, l.text)
		require.Equal(t, l.want, got)

		// Nothing but the whole line will do; only the reason is free text.
		fixed := len(strings.TrimSuffix(l.text, l.want.Reason))
		for i := range fixed {
			_, ok := parseLine(l.text[:i])
			require.False(t, ok, l.text[:i])
		}
		for _, with := range []string{" ", "x ", "usb 1-1: Product: ", "a: ", "[12:01:00.0] "} {
			_, ok := parseLine(with + l.text)
			require.False(t, ok, with+l.text)
		}
	}
}

func TestOtherLines(t *testing.T) {
	for _, s := range []string{
		"", "DMAR: DRHD: handling fault status reg 2",
		"DMAR: [INTR-REMAP] Request device [00:01.0] fault index 0x10 [fault reason 0x22] Present field in the IRTE entry is clear",
		"DMAR: [DMA Write NO_PASID] Request device [00:20.0] fault addr 0x900000 [fault reason 0x05] slot 32",
		"DMAR: [DMA Write NO_PASID] Request device [00:01.8] fault addr 0x900000 [fault reason 0x05] function 8",
		"DMAR: [DMA Write NO_PASID] Request device [00:01.0] fault addr 0x10000000000000000 [fault reason 0x05] 65 bits",
		"DMAR: [DMA Write NO_PASID] Request device [00:01.0] fault addr 0x900000 [fault reason 0x05] ",
		"DMAR: [DMA Write NO_PASID] Request device [00:01.0] fault addr 0xABC000 [fault reason 0x05] upper case",
		"vfio-pci 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000d address=0x900000 flags=0x0008]", // an interrupt
		"vfio-pci 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000d address=0x900000 flags=0x0020] ",
		"evil: 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000d address=0x900000 flags=0x0020]",
		"AMD-Vi: Event logged [INVALID_DEVICE_REQUEST device=0000:01:00.0 pasid=0x00000 address=0x0 flags=0x0]",
	} {
		_, ok := parseLine(s)
		require.False(t, ok, s)
	}
}

func TestMatches(t *testing.T) {
	intel := Fault{Address: "0000:01:00.0", AnySegment: true}
	require.True(t, intel.Matches("0000:01:00.0"))
	require.True(t, intel.Matches("0001:01:00.0"))
	require.False(t, intel.Matches("0000:01:00.1"))
	require.False(t, intel.Matches("01:00.0"))
	amd := Fault{Address: "0001:01:00.0"}
	require.True(t, amd.Matches("0001:01:00.0"))
	require.False(t, amd.Matches("0000:01:00.0"))
	require.False(t, Fault{Lost: 3}.Matches(""), "what was lost is of no function")
	require.False(t, Fault{AnySegment: true}.Matches(""))
}

func TestSuppressed(t *testing.T) {
	n, ok := parseSuppressed("dmar_fault: 34 callbacks suppressed")
	require.True(t, ok)
	require.EqualValues(t, 12, n)
	n, ok = parseSuppressed("amd_iommu_report_page_fault: 34 callbacks suppressed")
	require.True(t, ok)
	require.EqualValues(t, 34, n)
	for _, s := range []string{"net_ratelimit: 34 callbacks suppressed", "dmar_fault: -1 callbacks suppressed", "dmar_fault: 1_0 callbacks suppressed", "dmar_fault: 34 callbacks suppressed!"} {
		_, ok := parseSuppressed(s)
		require.False(t, ok, s)
	}
}

func TestRecords(t *testing.T) {
	r, ok := parseRecord([]byte("6,339,5140900,-,caller=T1;hello; world\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n"))
	require.True(t, ok)
	require.Equal(t, record{0, 339, 5140900, "hello; world"}, r)
	r, ok = parseRecord([]byte("14,2,3,-;x"))
	require.True(t, ok)
	require.EqualValues(t, 1, r.facility)
	for _, s := range []string{"", ";", "6;x", "6,1,2;x", "a,1,2,-;x", "6,-1,2,-;x", "6,1,18446744073709551616,-;x"} {
		_, ok := parseRecord([]byte(s))
		require.False(t, ok, s)
	}
}

// FuzzRecord: with any text in the log, a fault that comes out of it is well-formed, bounded,
// and printed by the kernel itself.
func FuzzRecord(f *testing.F) {
	for _, l := range lines {
		f.Add([]byte("3,1,2,-;" + l.text + "\n"))
		f.Add([]byte("11,1,2,-;" + l.text + "\n"))
	}
	f.Add([]byte("4,1,2,-;dmar_fault: 34 callbacks suppressed\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newReader(nil, nil)
		got, ok := take(r, b)
		if !ok || got.Address == "" {
			return
		}
		rec, _ := parseRecord(b)
		if rec.facility != 0 {
			t.Fatalf("%q is of facility %d", b, rec.facility)
		}
		var segment, bus, slot, function uint64
		if n, err := fmt.Sscanf(got.Address, "%x:%02x:%02x.%x", &segment, &bus, &slot, &function); n != 4 || err != nil {
			t.Fatalf("%q: address %q: %v", b, got.Address, err)
		}
		if address(segment, bus, slot, function) != got.Address || slot >= 32 || function >= 8 || !got.Matches(got.Address) {
			t.Fatalf("%q: address %q", b, got.Address)
		}
		if len(got.Reason) > maxReasonBytes || strings.Contains(got.Reason, "\n") {
			t.Fatalf("%q: reason %q", b, got.Reason)
		}
		if utf8.Valid(b) { // what is printed again says the same
			again := fmt.Sprintf("DMAR: [DMA %s NO_PASID] Request device [%02x:%02x.%d] fault addr 0x%x [fault reason 0x05] %s",
				map[bool]string{true: "Write", false: "Read"}[got.Write], bus, slot, function, uint64(got.IOVA), got.Reason)
			if same, ok := parseLine(again); !ok || same.IOVA != got.IOVA || same.Write != got.Write {
				t.Fatalf("%q says %+v, %q then %+v, %v", b, got, again, same, ok)
			}
		}
	})
}
