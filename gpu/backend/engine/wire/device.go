package wire

import (
	"fmt"

	"capgpu/program"
)

// MaxNameBytes bounds each text in a Device.
const MaxNameBytes = 256

// MaxFeatures bounds Device.Features.
const MaxFeatures = 64

// Check bounds what an engine says of its device. It believes nothing else: what a tenant may
// have is the smaller of this and the profile's.
func (d *Device) Check() error {
	for _, text := range [...]string{d.Name, d.Driver, d.PCIAddress} {
		if len(text) > MaxNameBytes {
			return fmt.Errorf("check a device: a name has %d bytes, more than %d", len(text), MaxNameBytes)
		}
	}
	if len(d.Features) > MaxFeatures {
		return fmt.Errorf("check a device: %d features, more than %d", len(d.Features), MaxFeatures)
	}
	for _, f := range d.Features {
		if len(f) > MaxNameBytes {
			return fmt.Errorf("check a device: the name of a feature has %d bytes, more than %d", len(f), MaxNameBytes)
		}
	}

	one := func(n uint32) bool { return n != 0 && n&(n-1) == 0 }
	switch {
	case d.Name == "":
		return fmt.Errorf("check a device: it has no name")
	case !one(d.OffsetAlign) || d.OffsetAlign > MaxOffsetAlign:
		return fmt.Errorf("check a device: bindings begin at multiples of %d bytes, which is no power of two up to %d", d.OffsetAlign, MaxOffsetAlign)
	case !one(d.SubgroupSize) || d.SubgroupSize > MaxSubgroup:
		return fmt.Errorf("check a device: subgroups of %d lanes", d.SubgroupSize)
	case d.MaxThreadsPerBlock == 0 || hasZero(d.MaxBlock) || hasZero(d.MaxGrid):
		return fmt.Errorf("check a device: it runs no workgroup of %d lanes, %v, in a grid of %v", d.MaxThreadsPerBlock, d.MaxBlock, d.MaxGrid)
	case d.MaxBindings < 2 || d.MaxPushBytes < 4:
		return fmt.Errorf("check a device: %d bindings and %d bytes of push constants leave nothing to programs", d.MaxBindings, d.MaxPushBytes)
	case d.MaxBindingBytes == 0:
		return fmt.Errorf("check a device: bindings have at most 0 bytes")
	}
	return nil
}

// Bounds that Vulkan sets (1.3, Required Limits), or more.
const (
	MaxOffsetAlign = 4096
	MaxSubgroup    = 128
)

func hasZero(d program.Dim3) bool { return d.X == 0 || d.Y == 0 || d.Z == 0 }
