package pci

import "time"

// quirk holds facts about a function that cannot be read from it.
type quirk struct {
	dmaBits int
	settle  time.Duration
}

var quirks = map[[2]uint16]quirk{
	// QEMU's edu (docs/specs/edu): "the default mask is 0x0fffffff"; its DMA engine
	// runs by a timer of 100 ms that no reset stops.
	{0x1234, 0x11e8}: {dmaBits: 28, settle: 120 * time.Millisecond},
}

// DMABits is how many bits of an address the function can put on the bus.
func DMABits(vendor, device uint16) int {
	if q, ok := quirks[[2]uint16{vendor, device}]; ok {
		return q.dmaBits
	}
	return 64
}

// Settle returns how long a function must be kept from the bus after it was stopped, because
// DMA that it had begun outlives a reset. It is 0 for a function with a complete reset.
func Settle(vendor, device uint16) time.Duration { return quirks[[2]uint16{vendor, device}].settle }
