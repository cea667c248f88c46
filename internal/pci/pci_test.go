package pci_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/pci"
	"capgpu/internal/pci/pcitest"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func address(t testing.TB, s string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(s)
	require.NoError(t, err)
	return a
}

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0000:01:00.0":     "0000:01:00.0",
		"01:00.0":          "0000:01:00.0",
		"0000:AF:1f.7":     "0000:af:1f.7",
		"10000:e1:00.0":    "10000:e1:00.0",
		"ffffffff:ff:1f.7": "ffffffff:ff:1f.7",
	} {
		require.Equal(t, want, address(t, in).String())
	}
	for _, in := range []string{
		"", "0", "01:00", "1:00.0", "01:0.0", "01:00.8", "01:20.0", "001:00.0", "01:00.00", "000:01:00.0",
		"0000:01:00.0 ", " 01:00.0", "01:00.0\n", "0000:01:00:0", "00000:01:00.0", "123456789:01:00.0", "0x00:01:00.0",
		"../../etc", "0000:01:00.-", "+000:01:00.0", "0000:+1:00.0", "01.00.0", "0000:01:00.0.0",
	} {
		_, err := pci.ParseAddress(in)
		require.ErrorIs(t, err, gpuerr.Invalid, "%q", in)
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("0000:01:00.0")
	f.Add("10000:e1:1f.7")
	f.Add("01:00.0")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := pci.ParseAddress(s)
		if err != nil {
			return
		}
		if again, err := pci.ParseAddress(a.String()); err != nil || again != a {
			t.Fatalf("%q is %v, and that %v, %v", s, a, again, err)
		}
		if a.Device > 31 || a.Function > 7 {
			t.Fatalf("%q is %v", s, a)
		}
	})
}

// gpuResource is that of a graphics card: registers, a wide aperture, ports, ROM.
const gpuResource = `0x00000000de000000 0x00000000deffffff 0x0000000000040200
0x0000007c00000000 0x0000007cffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000007d00000000 0x0000007d01ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x000000000000e000 0x000000000000e07f 0x0000000000040101
0x00000000df000000 0x00000000df07ffff 0x0000000000046200
`

func TestParseResource(t *testing.T) {
	bars, err := pci.ParseResource(gpuResource)
	require.NoError(t, err)
	require.Equal(t, []pci.BAR{
		{Index: 0, Start: 0xde000000, Bytes: 16 << 20, Memory: true},
		{Index: 1, Start: 0x7c00000000, Bytes: 4 << 30, Memory: true, Prefetched: true, Wide: true},
		{Index: 3, Start: 0x7d00000000, Bytes: 32 << 20, Memory: true, Prefetched: true, Wide: true},
		{Index: 5, Start: 0xe000, Bytes: 128},
	}, bars)
	line := "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
	for _, bad := range []string{"", line, line + line + line + line + line + "0 0 0\n", line + line + line + line + line + "\n",
		line + line + line + line + line + "0x0000000000000000 0x0000000000000000\n",
		line + line + line + line + line + "0x0000000000000000 0x0000000000000000 0x000000000000000g\n"} {
		_, err := pci.ParseResource(bad)
		require.Error(t, err, "%q", bad)
	}
}

func FuzzResource(f *testing.F) {
	f.Add(gpuResource)
	f.Add("0x0000000000000000 0xffffffffffffffff 0x0000000000000200\n")
	f.Fuzz(func(t *testing.T, text string) {
		bars, err := pci.ParseResource(text)
		if err != nil {
			if len(bars) > 0 {
				t.Fatalf("%q: %v, and yet %+v", text, err, bars)
			}
			return
		}
		last := -1
		for _, b := range bars {
			if b.Index <= last || b.Index >= 6 || b.Bytes == 0 || b.Start+(b.Bytes-1) < b.Start {
				t.Fatalf("%q: %+v", text, bars)
			}
			last = b.Index
		}
	})
}

func TestListReadsWhatSysfsSays(t *testing.T) {
	tree := pcitest.New(t)
	tree.Add(pcitest.Function{Address: "0000:01:00.0", Vendor: 0x10de, Device: 0x2330, Class: 0x030200, Driver: "nvidia", Group: 14, Resets: "flr bus", Resource: gpuResource})
	tree.Add(pcitest.Function{Address: "0000:00:1f.0", Vendor: 0x8086, Device: 0x2918, Class: 0x060100, Group: pci.NoGroup})
	tree.Put("bus/pci/devices/0000:01:00.0/numa_node", "1\n")
	all, err := tree.Bus().List()
	require.NoError(t, err)
	require.Len(t, all, 2)
	bridge, gpu := all[0], all[1]
	require.Equal(t, pci.NoGroup, bridge.Group)
	require.Equal(t, -1, bridge.NUMANode)
	require.Empty(t, bridge.Driver)
	require.False(t, bridge.Class.Candidate())
	require.Equal(t, "10de:2330", gpu.ID())
	require.Equal(t, "3D controller", gpu.Class.String())
	require.True(t, gpu.Class.Candidate())
	require.Equal(t, "nvidia", gpu.Driver)
	require.Equal(t, 14, gpu.Group)
	require.Equal(t, []string{"flr", "bus"}, gpu.Resets)
	require.Equal(t, 1, gpu.NUMANode)
	require.Equal(t, "D0", gpu.PowerState)
	require.EqualValues(t, 0x10, gpu.Revision)
	require.Len(t, gpu.BARs, 4)
	require.Empty(t, gpu.Override)
	members, err := tree.Bus().Group(14)
	require.NoError(t, err)
	require.Equal(t, []pci.Address{address(t, "01:00.0")}, members)

	_, err = tree.Bus().Function(address(t, "02:00.0"))
	require.ErrorIs(t, err, gpuerr.NoDevice)
	require.Equal(t, 28, pci.DMABits(0x1234, 0x11e8))
	require.Equal(t, 64, pci.DMABits(gpu.Vendor, gpu.Device))
}

// TestListWithoutPCI: a host without PCI has no functions, and that is no error.
func TestListWithoutPCI(t *testing.T) {
	all, err := (&pci.Bus{Sys: t.TempDir()}).List()
	require.NoError(t, err)
	require.Empty(t, all)
}

// TestBadAttributes: a value that the kernel would never write is an error that names the
// function, and affects no other.
func TestBadAttributes(t *testing.T) {
	for name, bad := range map[string]string{
		"vendor": "0x12345\n", "device": "zz\n", "class": "0x1000000\n", "revision": "16\n", "resource": "none\n", "numa_node": "x\n",
		"driver_override": string(make([]byte, 5000)),
	} {
		tree := pcitest.New(t)
		tree.Add(pcitest.Edu("0000:00:01.0", 1))
		tree.Add(pcitest.Edu("0000:00:02.0", 2))
		tree.Put("bus/pci/devices/0000:00:01.0/"+name, bad)
		all, err := tree.Bus().List()
		require.ErrorIs(t, err, gpuerr.IO, name)
		require.ErrorContains(t, err, "0000:00:01.0")
		require.Len(t, all, 1)
	}
}

// TestGuestHostItself: what this host has can be read.
func TestGuestHostItself(t *testing.T) {
	if _, err := os.Stat("/sys/bus/pci/devices"); err != nil {
		t.Skip("this host has no PCI")
	}
	all, err := (&pci.Bus{}).List()
	require.NoError(t, err)
	for _, f := range all {
		again, err := (&pci.Bus{}).Function(f.Address)
		require.NoError(t, err)
		require.Equal(t, f.ID(), again.ID())
	}
}
