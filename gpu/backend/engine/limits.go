package engine

import (
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/program"
)

const (
	maxJobs = 16
	// cancelBound is how long a device takes from the stop word to the end of a job: it looks
	// every 256 rounds of a loop. On a host's processor others may have it meanwhile.
	cancelBound = 100 * time.Millisecond
	// widest is the size of the widest scalar.
	widest = 8
)

// infoOf is what tenants may have of a device: no more than the profile.
func infoOf(d *wire.Device, hostBytes uint64) backend.Info {
	return backend.Info{
		Name: d.Name, MemoryBytes: hostBytes + d.LocalBytes, LocalBytes: d.LocalBytes,
		Lists: true, LoadsPrograms: true, Grouped: true, Deterministic: true,
		Limits: backend.Limits{
			MaxThreadsPerBlock: min(d.MaxThreadsPerBlock, program.MaxBlockThreads),
			// One number for all dimensions. A launch that is beyond another of them fails.
			MaxBlockDim:     min(max(d.MaxBlock.X, d.MaxBlock.Y, d.MaxBlock.Z), program.MaxBlockThreads),
			MaxGridDim:      min(max(d.MaxGrid.X, d.MaxGrid.Y, d.MaxGrid.Z), program.MaxGrid),
			MaxSharedBytes:  min(d.MaxSharedBytes, program.MaxSharedBytes),
			MaxBindings:     min(d.MaxBindings-1, program.MaxBindings),
			MaxInlineBytes:  min(d.MaxPushBytes-4, program.MaxInlineBytes),
			MaxJobs:         maxJobs,
			SubgroupSize:    d.SubgroupSize,
			BindingAlign:    widest,
			OffsetAlign:     d.OffsetAlign,
			MaxBindingBytes: min(d.MaxBindingBytes, 1<<32-widest), // instrument.ArmSlot
			ComputeUnits:    d.ComputeUnits,
			CancelBound:     cancelBound,
		},
	}
}
