package manager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/iommu/faultlog"
	"capgpu/manager"
)

// A fault that may be of several functions is recorded, and affects none of them.
func TestFaultOfAnySegment(t *testing.T) {
	const double = "0001:01:00.0"
	b := newBus(t, addressA, double, addressB)
	w := startOn(t, b, func(c *manager.Config) {
		c.Policy.Functions = append(c.Policy.Functions, functionPolicy("edu2", double, c.Policy))
	})
	for _, name := range []string{"edu0", "edu1", "edu2"} {
		w.driverOf(name, 1)
	}
	fault := func(address string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sink(faultlog.Fault{Address: address, AnySegment: true, IOVA: 0x900000, Write: true, Reason: "PTE Write access is not set"})
	}
	for range 40 {
		fault(addressA)
	}
	require.Equal(t, 32, w.log.kinds()["iommu.fault.unclear"])
	require.Equal(t, `functions=edu0,edu2 before=0 iova=0x900000 access=write reason="PTE Write access is not set"`, w.log.detail("iommu.fault.unclear"))
	require.Zero(t, w.log.kinds()["iommu.fault"])

	// A fault that fits a single function counts for that one.
	for range 5 {
		fault(addressB)
	}
	w.driverOf("edu1", 2)
	for _, name := range []string{"edu0", "edu2"} {
		epoch, _ := w.driverOf(name, 1)
		require.EqualValues(t, 1, epoch)
	}
	require.Equal(t, 1, w.log.kinds()["driver.end"])
	require.Contains(t, w.log.detail("driver.end"), "edu1 epoch=1")
}
