// Package encode encodes the Go client's values as messages of the schema, for every
// server of the schema: gates and model servers.
package encode

import (
	"math"
	"time"

	"capgpu/client"
	"capgpu/schema"
)

// Duration reads nanoseconds of the wire; a value that does not fit counts as for
// ever.
func Duration(nanos uint64) time.Duration { return time.Duration(min(nanos, math.MaxInt64)) }

// Device fills in a device.
func Device(out schema.GpuDeviceInfo, d client.DeviceInfo) error {
	out.SetIndex(d.Index)
	out.SetVendorId(d.VendorID)
	out.SetDeviceId(d.DeviceID)
	out.SetState(schema.DeviceState(d.State))
	out.SetEpoch(d.Epoch)
	out.SetMemoryBytes(d.MemoryBytes)
	out.SetFacet(schema.SessionFacet(d.Facet))
	out.SetRecovery(schema.RecoveryStep(d.Recovery))
	out.SetSuspended(d.Suspended)
	if err := out.SetShortage(d.Shortage); err != nil {
		return err
	}
	if err := out.SetName(d.Name); err != nil {
		return err
	}
	if err := out.SetBackend(d.Backend); err != nil {
		return err
	}

	return out.SetPciAddress(d.PCIAddress)
}

// Budget fills in a list that alloc allocates.
func Budget(alloc func(n int32) (schema.BudgetEntry_List, error), entries []client.BudgetEntry) error {
	list, err := alloc(int32(len(entries)))
	if err != nil {
		return err
	}
	for i, e := range entries {
		out := list.At(i)
		out.SetUsed(e.Used)
		out.SetLimit(e.Limit)
		out.SetPeak(e.Peak)
		if err := out.SetResource(e.Resource); err != nil {
			return err
		}
	}
	return nil
}
