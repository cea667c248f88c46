package manager

import (
	"fmt"
	"strings"
	"time"

	"capgpu/iommu/faultlog"
)

// suspects are the devices that a fault may be of. Intel's driver does not say of
// which PCI segment a function is: on a host with several of them a line may fit one
// function of each.
func (m *Manager) suspects(f faultlog.Fault) (of []*device) {
	for _, d := range m.devices {
		if f.Matches(d.function.Identity().PCIAddress) {
			of = append(of, d)
		}
	}
	return of
}

// recordUnclear records a fault that may be of several functions. It counts for none
// of them: who strays would otherwise end the work of its double.
func (m *Manager) recordUnclear(f faultlog.Fault, of []*device) {
	before, recorded := m.unclearLimiter.allow(time.Now())
	if !recorded {
		return
	}
	var names []string
	for _, d := range of {
		names = append(names, d.name)
	}
	m.recordAct("iommu.fault.unclear", fmt.Sprintf("functions=%s before=%d %s", strings.Join(names, ","), before, describeFault(f)))
}

// describeFault is what of a fault is the same in every record.
func describeFault(f faultlog.Fault) string {
	access := "read"
	if f.Write {
		access = "write"
	}
	return fmt.Sprintf("iova=%#x access=%s reason=%q", uint64(f.IOVA), access, clipped(f.Reason))
}
