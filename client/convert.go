package client

import (
	"capgpu/control"
)

func deviceInfo(d control.DeviceInfo) DeviceInfo {
	return DeviceInfo{
		Index: d.Index, State: DeviceState(d.State), Epoch: d.Epoch, MemoryBytes: d.MemoryBytes,
		VendorID: d.VendorID, DeviceID: d.DeviceID, Facet: Facet(d.Facet),
		Name: d.Name, Backend: d.Backend, PCIAddress: d.PCIAddress, Recovery: RecoveryStep(d.Recovery), Generation: d.Generation, Suspended: d.Suspended, Shortage: d.Shortage,
	}
}

func description(d control.Description) Description {
	return Description{
		Device:             deviceInfo(d.Device),
		HangBound:          nanos(d.HangBoundNanos),
		RevokeBound:        nanos(d.RevokeBoundNanos),
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
		Poisoned:           d.Poisoned,
		Checked:            d.Checked,
		GlobalMemAlignment: d.GlobalMemAlignment,
		MaxBindingBytes:    d.MaxBindingBytes,
		LocalBytes:         d.LocalBytes,
		ComputeUnits:       d.ComputeUnits,
		Deterministic:      d.Deterministic,
	}
}

func programInfo(p control.ProgramInfo) ProgramInfo {
	info := ProgramInfo{
		Name: p.Name, Digest: p.Digest, InlineBytes: p.InlineBytes,
		Block: Dim3{p.Block[0], p.Block[1], p.Block[2]}, BlockFree: p.BlockFree,
		SharedBytes: p.SharedBytes, DynamicElementBytes: p.DynamicElementBytes, StackBytes: p.StackBytes,
		OrderDependent: p.OrderDependent, Features: p.Features, Warnings: p.Warnings,
		ToleranceAbs: p.ToleranceAbs, ToleranceRel: p.ToleranceRel,
		Bindings: make([]BindingInfo, len(p.Bindings)), Inline: make([]FieldInfo, len(p.Inline)),
	}
	for i, b := range p.Bindings {
		info.Bindings[i] = BindingInfo{Name: b.Name, Access: Access(b.Access), Type: b.Type}
	}
	for i, f := range p.Inline {
		info.Inline[i] = FieldInfo{Name: f.Name, Type: f.Type, Off: f.Off}
	}
	return info
}
