package client

import (
	"capgpu/control"
)

func deviceInfo(d control.DeviceInfo) DeviceInfo {
	return DeviceInfo{
		Index: d.Index, State: DeviceState(d.State), Epoch: d.Epoch, MemoryBytes: d.MemoryBytes,
		VendorID: d.VendorID, DeviceID: d.DeviceID, Facet: Facet(d.Facet),
		Name: d.Name, Backend: d.Backend, PCIAddress: d.PCIAddress,
	}
}

func description(d control.Description) Description {
	return Description{
		Device:             deviceInfo(d.Device),
		HangBound:          nanos(d.HangBoundNanos),
		MaxDeadline:        nanos(d.MaxDeadlineNanos),
		MaxBufferBytes:     d.MaxBufferBytes,
		MaxThreadsPerBlock: d.MaxThreadsPerBlock,
		MaxBlockDim:        d.MaxBlockDim,
		MaxGridDim:         d.MaxGridDim,
		MaxSharedBytes:     d.MaxSharedBytes,
		MaxBindings:        d.MaxBindings,
		MaxInlineBytes:     d.MaxInlineBytes,
		MaxQueueEntries:    d.MaxQueueEntries,
		SubgroupSize:       d.SubgroupSize,
		Facet:              Facet(d.Facet),
		Programs:           d.Programs,
	}
}

func programInfo(p control.ProgramInfo) ProgramInfo {
	info := ProgramInfo{
		Name: p.Name, Digest: p.Digest, InlineBytes: p.InlineBytes, SharedBytes: p.SharedBytes,
		Block:    Dim3{p.BlockX, p.BlockY, p.BlockZ},
		Bindings: make([]BindingInfo, len(p.Bindings)),
	}
	for i, b := range p.Bindings {
		info.Bindings[i] = BindingInfo{Name: b.Name, Access: Access(b.Access)}
	}
	return info
}
