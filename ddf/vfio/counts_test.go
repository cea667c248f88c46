package vfio

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const someInterrupts = `           CPU0       CPU1
  0:         44          0  IR-IO-APIC    2-edge      timer
 28:          3          1  IR-PCI-MSI-0000:01:00.0    0-edge      vfio-msi[0](0000:01:00.0)
 29:          0          2  IR-PCI-MSIX-0000:01:00.0    1-edge      vfio-msix[2047](0000:01:00.0)
 30:         10          0  IR-PCI-MSIX-0000:02:00.0    0-edge      vfio-msix[0](0000:02:00.0)
 31:          x          0  IR-PCI-MSI-0000:01:00.0    5-edge      vfio-msi[5](0000:01:00.0)
 32:          1
 33:          9          9  x vfio-msi[2048](0000:01:00.0)
 34:          9          9  x vfio-msi[-1](0000:01:00.0)
 35:          9          9  x vfio-intx(0000:01:00.0)
NMI:          0          0   Non-maskable interrupts
`

func TestParseInterrupts(t *testing.T) {
	require.Equal(t, map[int]uint64{0: 4, 2047: 2}, parseInterrupts([]byte(someInterrupts), "0000:01:00.0"))
	require.Empty(t, parseInterrupts(nil, "0000:01:00.0"))
}

func FuzzInterrupts(f *testing.F) {
	f.Add([]byte(someInterrupts))
	f.Add([]byte("CPU0\nvfio-msi[0](0000:01:00.0)\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for vector := range parseInterrupts(text, "0000:01:00.0") {
			require.True(t, vector >= 0 && vector < maxVectors)
		}
	})
}

func TestCountsGoOn(t *testing.T) {
	var c irqCount
	c.see(3)
	c.see(5)
	c.restart()
	c.see(0)
	c.see(2)
	c.see(1) // armed anew, unseen
	require.EqualValues(t, 8, c.before+c.now)
}
