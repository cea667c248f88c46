package manager_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/iommu/faultlog"
)

// A vector that storms is masked, and its driver replaced.
func TestInterruptStorm(t *testing.T) {
	b := newBus(t, addressA)
	f := b.functions[addressA]
	w := startOn(t, b, nil)
	w.driverOf("edu0", 1)
	f.script(func() { f.perCount = 10_000_000 })
	require.Eventually(t, func() bool { return w.log.kinds()["interrupt.storm"] == 1 }, patience, time.Millisecond)
	f.script(func() { f.perCount = 0 })
	w.driverOf("edu0", 2)
	require.Equal(t, []int{0}, f.masked)
	require.Regexp(t, `^edu0 epoch=1 vector=0 perSecond=\d+ limit=200000 masked=true$`, w.log.detail("interrupt.storm"))
	require.Contains(t, w.log.detail("driver.end"), "interrupt storm")
}

// A fault is recorded and sent to the driver of its function, and to no other.
func TestFaults(t *testing.T) {
	b := newBus(t, addressA, addressB)
	w := startOn(t, b, nil)
	w.driverOf("edu0", 1)
	w.driverOf("edu1", 1)
	b.fault(addressA, 0x900000)
	b.fault("0000:03:00.0", 0x900000) // of no function
	require.Equal(t, 1, w.log.kinds()["iommu.fault"])
	require.Equal(t, `edu0 epoch=1 iova=0x900000 access=write reason="PTE Write access is not set"`, w.log.detail("iommu.fault"))
	for range 4 {
		b.fault(addressA, 0x901000)
	}
	w.driverOf("edu0", 2)
	require.Contains(t, w.log.detail("driver.end"), "edu0 epoch=1")
	require.Contains(t, w.log.detail("driver.end"), "more than 4 IOMMU faults of the device in 10s; the last was at 0x901000")
	epoch, _ := w.driverOf("edu1", 1)
	require.EqualValues(t, 1, epoch)
}

// A fault that the kernel reports only on request belongs to the driver that has just ended,
// not to its successor.
func TestLateFaults(t *testing.T) {
	b := newBus(t, addressA)
	w := startOn(t, b, nil)
	_, pid := w.driverOf("edu0", 1)
	b.mu.Lock()
	for range 40 {
		b.queued = append(b.queued, faultlog.Fault{Address: addressA, IOVA: 0x900000, Reason: "PTE Read access is not set", Lost: 2})
	}
	b.mu.Unlock()
	kill(t, pid)
	w.driverOf("edu0", 2)
	require.Contains(t, w.log.detail("driver.end"), "killed")
	require.Equal(t, `edu0 epoch=1 iova=0x900000 access=read reason="PTE Read access is not set"`, w.log.detail("iommu.fault"))
	require.Equal(t, 32, w.log.kinds()["iommu.fault"])
	require.Equal(t, "edu0 epoch=1 faults=8", w.log.detail("iommu.faults"), "what has no record is counted")
	require.Equal(t, "reports=2", w.log.detail("iommu.faults.lost"))
	epoch, _ := w.driverOf("edu0", 2)
	require.EqualValues(t, 2, epoch)
}

// A manager serves a host that reports no faults, and the log says what is missing.
func TestNoFaultLog(t *testing.T) {
	b := newBus(t, addressA)
	b.blind = gpuerr.New(gpuerr.IO, "open the kernel's log: permission denied")
	w := startOn(t, b, nil)
	w.driverOf("edu0", 1)
	require.Contains(t, w.log.detail("iommu.blind"), "permission denied")
}
