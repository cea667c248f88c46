package pci_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/internal/pci"
)

// TestHardwareClaim claims, takes over and gives back on the real kernel.
func TestHardwareClaim(t *testing.T) {
	names := os.Getenv("CAPGPU_HW")
	if names == "" {
		t.Skip("SKIPPED: needs PCI functions behind an IOMMU that nobody uses; name them in CAPGPU_HW, or run it in the guest (go run ./qemu/cmd/guest-run)")
	}
	for _, name := range strings.Split(names, ",") {
		a := address(t, name)
		bus, dir := &pci.Bus{}, t.TempDir()
		before, err := bus.Function(a)
		require.NoError(t, err)
		require.NotEqual(t, pci.NoGroup, before.Group)

		c, err := pci.NewClaimer(bus, dir)
		require.NoError(t, err)
		_, err = c.Claim(a)
		require.NoError(t, err)
		f, err := bus.Function(a)
		require.NoError(t, err)
		require.Equal(t, pci.Driver, f.Driver)
		require.FileExists(t, "/dev/vfio/vfio")

		// Another run, after a crash of the first.
		require.NoError(t, c.Close())
		c, err = pci.NewClaimer(bus, dir)
		require.NoError(t, err)
		r, err := c.Reconcile([]pci.Address{a})
		require.NoError(t, err)
		require.Len(t, r.Adopted, 1)
		driver, err := c.Release(a)
		require.NoError(t, err)
		require.Equal(t, before.Driver, driver)
		after, err := bus.Function(a)
		require.NoError(t, err)
		require.Equal(t, before.Driver, after.Driver)
		require.Equal(t, before.Override, after.Override)
		require.NoError(t, c.Close())
	}
}
