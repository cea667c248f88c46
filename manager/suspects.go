package manager

import (
	"fmt"
	"strings"
	"time"

	"capgpu/iommu/faultlog"
)

// suspects returns the devices that may have caused a fault. Intel's driver does not name the
// PCI segment of a function: on a host with several, a line may fit one function of each.
func (m *Manager) suspects(f faultlog.Fault) (of []*device) {
	for _, d := range m.devices {
		if f.Matches(d.function.Identity().PCIAddress) {
			of = append(of, d)
		}
	}
	return of
}

// recordUnclear records a fault that may be of several functions. It counts for none of them:
// otherwise a device could end the work of another one with the same address.
func (m *Manager) recordUnclear(f faultlog.Fault, of []*device) {
	before, recorded := m.faults.unclear.allow(time.Now())
	if !recorded {
		return
	}
	var names []string
	for _, d := range of {
		names = append(names, d.name)
	}
	m.recordAct("iommu.fault.unclear", fmt.Sprintf("functions=%s before=%d %s", strings.Join(names, ","), before, describeFault(f)))
}

// describeFault formats the part of a fault that is the same in every record.
func describeFault(f faultlog.Fault) string {
	access := "read"
	if f.Write {
		access = "write"
	}
	return fmt.Sprintf("iova=%#x access=%s reason=%q", uint64(f.IOVA), access, clipped(f.Reason))
}
