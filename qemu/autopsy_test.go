package qemu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEduBars(t *testing.T) {
	const said = "  Bus  0, device   1, function 0:\r\n    PCI bridge: PCI device 1b36:000c\r\n      BAR0: 32 bit memory at 0xfea00000 [0xfea00fff].\r\n" +
		"  Bus  1, device   0, function 0:\r\n    Class 0255: PCI device 1234:11e8\r\n      IRQ 0, pin A\r\n      BAR0: 32 bit memory at 0xfe800000 [0xfe8fffff].\r\n      id \"edu0\"\r\n" +
		"  Bus  2, device   0, function 0:\r\n    Class 0255: PCI device 1234:11e8\r\n      BAR0: 32 bit memory at 0xffffffffffffffff [0x000ffffe].\r\n"
	require.Equal(t, []uint64{0xfe800000}, eduBars(said))
	require.Empty(t, eduBars("  Bus  0, device   0, function 0:\r\n    Host bridge: PCI device 8086:29c0\r\n"))
}
