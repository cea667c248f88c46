package vfio

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// layouts are the structures of <linux/vfio.h>, Linux 6.12, on every 64-bit machine: size,
// and the name and offset of each field. grown is the size of a field that Linux 6.6 has
// added, by which an older header is smaller.
var layouts = []struct {
	c     string
	g     any
	bytes uintptr
	grown uintptr
	at    map[string]uintptr
}{
	{"vfio_group_status", GroupStatus{}, 8, 0, map[string]uintptr{"argsz": 0, "flags": 4}},
	{"vfio_device_info", DeviceInfo{}, 24, 4, map[string]uintptr{"argsz": 0, "flags": 4, "num_regions": 8, "num_irqs": 12, "cap_offset": 16}},
	{"vfio_region_info", RegionInfo{}, 32, 0, map[string]uintptr{"argsz": 0, "flags": 4, "index": 8, "cap_offset": 12, "size": 16, "offset": 24}},
	{"vfio_region_sparse_mmap_area", MmapArea{}, 16, 0, map[string]uintptr{"offset": 0, "size": 8}},
	{"vfio_irq_info", IRQInfo{}, 16, 0, map[string]uintptr{"argsz": 0, "flags": 4, "index": 8, "count": 12}},
	{"vfio_irq_set", IRQSet{}, 20, 0, map[string]uintptr{"argsz": 0, "flags": 4, "index": 8, "start": 12, "count": 16}},
	{"vfio_iommu_type1_info", IOMMUInfo{}, 24, 0, map[string]uintptr{"argsz": 0, "flags": 4, "iova_pgsizes": 8, "cap_offset": 16}},
	{"vfio_info_cap_header", CapHeader{}, 8, 0, map[string]uintptr{"id": 0, "version": 2, "next": 4}},
	{"vfio_iova_range", IOVARange{}, 16, 0, map[string]uintptr{"start": 0, "end": 8}},
	{"vfio_iommu_type1_dma_map", DMAMap{}, 32, 0, map[string]uintptr{"argsz": 0, "flags": 4, "vaddr": 8, "iova": 16, "size": 24}},
	{"vfio_iommu_type1_dma_unmap", DMAUnmap{}, 24, 0, map[string]uintptr{"argsz": 0, "flags": 4, "iova": 8, "size": 16}},
}

// bodies are where the contents of the kernel's open-ended structures begin, as
// this package reads and writes them.
var bodies = []struct {
	c, field string
	at       uintptr
}{
	{"vfio_irq_set", "data", 20},
	{"vfio_region_info_cap_sparse_mmap", "nr_areas", 8},
	{"vfio_region_info_cap_sparse_mmap", "areas", 16},
	{"vfio_iommu_type1_info_cap_iova_range", "nr_iovas", 8},
	{"vfio_iommu_type1_info_cap_iova_range", "iova_ranges", 16},
	{"vfio_iommu_type1_info_dma_avail", "avail", 8},
}

// numbers are the constants, by their names in the header.
var numbers = map[string]uint64{
	"VFIO_API_VERSION": APIVersion, "VFIO_TYPE1_IOMMU": Type1IOMMU, "VFIO_TYPE1v2_IOMMU": Type1v2IOMMU, "VFIO_NOIOMMU_IOMMU": NoIOMMU, "VFIO_UNMAP_ALL": UnmapAll,

	"VFIO_GET_API_VERSION": uint64(GetAPIVersion), "VFIO_CHECK_EXTENSION": uint64(CheckExtension), "VFIO_SET_IOMMU": uint64(SetIOMMU),
	"VFIO_GROUP_GET_STATUS": uint64(GroupGetStatus), "VFIO_GROUP_SET_CONTAINER": uint64(GroupSetContainer),
	"VFIO_GROUP_UNSET_CONTAINER": uint64(GroupUnsetContainer), "VFIO_GROUP_GET_DEVICE_FD": uint64(GroupGetDeviceFD),
	"VFIO_DEVICE_GET_INFO": uint64(DeviceGetInfo), "VFIO_DEVICE_GET_REGION_INFO": uint64(DeviceGetRegionInfo),
	"VFIO_DEVICE_GET_IRQ_INFO": uint64(DeviceGetIRQInfo), "VFIO_DEVICE_SET_IRQS": uint64(DeviceSetIRQs), "VFIO_DEVICE_RESET": uint64(DeviceResetNow),
	"VFIO_IOMMU_GET_INFO": uint64(IOMMUGetInfo), "VFIO_IOMMU_MAP_DMA": uint64(IOMMUMapDMA), "VFIO_IOMMU_UNMAP_DMA": uint64(IOMMUUnmapDMA),

	"VFIO_GROUP_FLAGS_VIABLE": GroupViable, "VFIO_GROUP_FLAGS_CONTAINER_SET": GroupContainerSet,
	"VFIO_DEVICE_FLAGS_RESET": DeviceReset, "VFIO_DEVICE_FLAGS_PCI": DevicePCI, "VFIO_DEVICE_FLAGS_CAPS": DeviceCaps,
	"VFIO_REGION_INFO_FLAG_READ": RegionRead, "VFIO_REGION_INFO_FLAG_WRITE": RegionWrite, "VFIO_REGION_INFO_FLAG_MMAP": RegionMmap, "VFIO_REGION_INFO_FLAG_CAPS": RegionCaps,
	"VFIO_REGION_INFO_CAP_SPARSE_MMAP": RegionCapSparseMmap, "VFIO_REGION_INFO_CAP_MSIX_MAPPABLE": RegionCapMSIXMappable,
	"VFIO_PCI_BAR0_REGION_INDEX": RegionBAR0, "VFIO_PCI_ROM_REGION_INDEX": RegionROM, "VFIO_PCI_CONFIG_REGION_INDEX": RegionConfig,
	"VFIO_PCI_VGA_REGION_INDEX": RegionVGA, "VFIO_PCI_NUM_REGIONS": NumRegions,
	"VFIO_IRQ_INFO_EVENTFD": IRQEventFD, "VFIO_IRQ_INFO_MASKABLE": IRQMaskable, "VFIO_IRQ_INFO_AUTOMASKED": IRQAutomasked, "VFIO_IRQ_INFO_NORESIZE": IRQNoResize,
	"VFIO_PCI_INTX_IRQ_INDEX": IRQIndexINTx, "VFIO_PCI_MSI_IRQ_INDEX": IRQIndexMSI, "VFIO_PCI_MSIX_IRQ_INDEX": IRQIndexMSIX,
	"VFIO_PCI_ERR_IRQ_INDEX": IRQIndexErr, "VFIO_PCI_REQ_IRQ_INDEX": IRQIndexReq, "VFIO_PCI_NUM_IRQS": NumIRQs,
	"VFIO_IRQ_SET_DATA_NONE": IRQDataNone, "VFIO_IRQ_SET_DATA_EVENTFD": IRQDataEventFD, "VFIO_IRQ_SET_ACTION_MASK": IRQActionMask,
	"VFIO_IRQ_SET_ACTION_UNMASK": IRQActionUnmask, "VFIO_IRQ_SET_ACTION_TRIGGER": IRQActionTrigger,
	"VFIO_IOMMU_INFO_PGSIZES": IOMMUInfoPgsizes, "VFIO_IOMMU_INFO_CAPS": IOMMUInfoCaps,
	"VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE": IOMMUCapIOVARange, "VFIO_IOMMU_TYPE1_INFO_CAP_MIGRATION": IOMMUCapMigration, "VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL": IOMMUCapDMAAvail,
	"VFIO_DMA_MAP_FLAG_READ": DMAMapRead, "VFIO_DMA_MAP_FLAG_WRITE": DMAMapWrite, "VFIO_DMA_UNMAP_FLAG_ALL": DMAUnmapAll,
}

func TestLayouts(t *testing.T) {
	for _, l := range layouts {
		typ := reflect.TypeOf(l.g)
		require.Equal(t, l.bytes, typ.Size(), l.c)
		seen := 0
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Name == "Pad" {
				continue
			}
			at, ok := l.at[cName(f.Name)]
			require.True(t, ok, "%s.%s", l.c, f.Name)
			require.Equal(t, at, f.Offset, "%s.%s", l.c, f.Name)
			seen++
		}
		require.Len(t, l.at, seen, l.c)
	}
}

// cName returns a field's name in the header: num_irqs for NumIRQs.
func cName(name string) string {
	if name == "IOVAPgsizes" {
		return "iova_pgsizes"
	}
	name = strings.NewReplacer("IRQs", "Irqs", "IOVA", "Iova", "ID", "Id").Replace(name)
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}

// TestParity compiles the same claims against the header of this machine.
func TestParity(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("SKIPPED: needs a C compiler")
	}
	if _, err := os.Stat("/usr/include/linux/vfio.h"); err != nil {
		t.Skip("SKIPPED: needs linux/vfio.h (linux-libc-dev)")
	}
	var src strings.Builder
	src.WriteString("#include <stddef.h>\n#include <linux/vfio.h>\n#include <linux/version.h>\n")
	src.WriteString("#define OLD (LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0))\n")
	claim := func(condition, about string) { fmt.Fprintf(&src, "_Static_assert(%s, \"%s\");\n", condition, about) }
	for _, l := range layouts {
		claim(fmt.Sprintf("sizeof(struct %s) == %d - (OLD ? %d : 0)", l.c, l.bytes, l.grown), "size of "+l.c)
		for field, at := range l.at {
			claim(fmt.Sprintf("offsetof(struct %s, %s) == %d", l.c, field, at), l.c+"."+field)
		}
	}
	for _, b := range bodies {
		claim(fmt.Sprintf("offsetof(struct %s, %s) == %d", b.c, b.field, b.at), b.c+"."+b.field)
	}
	for name, value := range numbers {
		claim(fmt.Sprintf("%s == %d", name, value), name)
	}
	compile := func(text string) (string, error) {
		file := filepath.Join(t.TempDir(), "parity.c")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out, err := exec.Command(cc, "-std=gnu11", "-fsyntax-only", file).CombinedOutput()
		return string(out), err
	}
	out, err := compile(src.String())
	require.NoError(t, err, "%s", out)
	// The compiler does look.
	_, err = compile(src.String() + "_Static_assert(VFIO_DEVICE_RESET == 1, \"wrong\");\n")
	require.Error(t, err)
}
