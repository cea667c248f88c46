package pci_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/pci"
	"capgpu/internal/pci/pcitest"
)

func gpu(addr string, group int, driver string) pcitest.Function {
	return pcitest.Function{Address: addr, Vendor: 0x10de, Device: 0x2330, Class: 0x030200, Driver: driver, Group: group, Resets: "flr bus"}
}

func claimer(t *testing.T, tree *pcitest.Tree, dir string) *pci.Claimer {
	t.Helper()
	c, err := pci.NewClaimer(tree.Bus(), dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// next is the claimer of the process that comes after c's, which has died.
func next(t *testing.T, c *pci.Claimer, tree *pcitest.Tree, dir string) *pci.Claimer {
	t.Helper()
	require.NoError(t, c.Close())
	return claimer(t, tree, dir)
}

// claimOf returns the claim of a GPU in the first boot.
func claimOf(a pci.Address, former string) pci.Claim {
	return pci.Claim{Address: a, ID: "10de:2330", Boot: pcitest.BootID(1), Former: former}
}

func TestClaimAndRelease(t *testing.T) {
	for _, former := range []string{"nvidia", ""} {
		tree, dir := pcitest.New(t), t.TempDir()
		tree.Add(gpu("0000:01:00.0", 14, former))
		a := address(t, "01:00.0")
		c := claimer(t, tree, dir)

		claim, err := c.Claim(a)
		require.NoError(t, err)
		require.Equal(t, claimOf(a, former), claim)
		require.Equal(t, "vfio-pci", tree.Driver("0000:01:00.0"))
		require.Equal(t, []pci.Claim{claim}, c.Claims())
		again, err := c.Claim(a)
		require.NoError(t, err)
		require.Equal(t, claim, again)

		driver, err := c.Release(a)
		require.NoError(t, err)
		require.Equal(t, former, driver)
		require.Equal(t, former, tree.Driver("0000:01:00.0"))
		require.Equal(t, "(null)", tree.Override("0000:01:00.0"))
		require.Empty(t, c.Claims())
		_, err = c.Release(a)
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.Empty(t, next(t, c, tree, dir).Claims(), "the journal is empty, too")
	}
}

// TestClaimOfOneThatIsThere: a function that the operator bound to vfio-pci stays on it.
func TestClaimOfOneThatIsThere(t *testing.T) {
	tree := pcitest.New(t)
	tree.Add(gpu("0000:01:00.0", 14, "vfio-pci"))
	a := address(t, "01:00.0")
	c := claimer(t, tree, t.TempDir())
	claim, err := c.Claim(a)
	require.NoError(t, err)
	require.Equal(t, "vfio-pci", claim.Former)
	driver, err := c.Release(a)
	require.NoError(t, err)
	require.Equal(t, "vfio-pci", driver)
	require.Empty(t, tree.Writes(), "nothing was touched")
}

// TestOverrideComesBack: an override that was there (driverctl sets them) is restored.
func TestOverrideComesBack(t *testing.T) {
	tree := pcitest.New(t)
	tree.Add(gpu("0000:01:00.0", 14, "nouveau"))
	tree.Put("bus/pci/devices/0000:01:00.0/driver_override", "nouveau\n")
	a := address(t, "01:00.0")
	c := claimer(t, tree, t.TempDir())
	_, err := c.Claim(a)
	require.NoError(t, err)
	_, err = c.Release(a)
	require.NoError(t, err)
	require.Equal(t, "nouveau", tree.Override("0000:01:00.0"))
	require.Equal(t, "nouveau", tree.Driver("0000:01:00.0"))
}

func TestGroupIsViable(t *testing.T) {
	other := func(driver string, class uint32) pcitest.Function {
		return pcitest.Function{Address: "0000:01:00.1", Vendor: 0x10de, Device: 0x22ba, Class: class, Driver: driver, Group: 14}
	}
	for _, c := range []struct {
		name  string
		other pcitest.Function
		ok    bool
	}{
		{"audio on its driver", other("snd_hda_intel", 0x040300), false},
		{"audio without a driver", other("", 0x040300), false},
		{"audio on vfio-pci", other("vfio-pci", 0x040300), true},
		{"audio on the stub", other("pci-stub", 0x040300), true},
		{"port", other("pcieport", 0x060400), true},
		{"host bridge", other("", 0x060000), true},
		{"bridge with a driver that does more", other("shpchp", 0x060400), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := pcitest.New(t)
			tree.Add(gpu("0000:01:00.0", 14, "nvidia"))
			tree.Add(c.other)
			_, err := claimer(t, tree, t.TempDir()).Claim(address(t, "01:00.0"))
			if c.ok {
				require.NoError(t, err)
				return
			}
			var g *pci.GroupError
			require.ErrorAs(t, err, &g)
			require.ErrorIs(t, err, gpuerr.Denied)
			require.Equal(t, "0000:01:00.1", g.Offender.Address.String())
			require.ErrorContains(t, err, "0000:01:00.1")
			require.Empty(t, tree.Writes())
			require.Equal(t, "nvidia", tree.Driver("0000:01:00.0"))
		})
	}
}

func TestClaimRefuses(t *testing.T) {
	tree, dir := pcitest.New(t), t.TempDir()
	tree.Add(gpu("0000:01:00.0", pci.NoGroup, "nvidia"))
	console := gpu("0000:02:00.0", 2, "amdgpu")
	console.BootVGA = true
	tree.Add(console)
	tree.Add(pcitest.Function{Address: "0000:00:1c.0", Vendor: 0x8086, Device: 1, Class: 0x060400, Driver: "pcieport", Group: 3})
	c := claimer(t, tree, dir)
	_, err := c.Claim(address(t, "01:00.0"))
	require.ErrorIs(t, err, gpuerr.Denied)
	require.ErrorContains(t, err, "intel_iommu=on")
	_, err = c.Claim(address(t, "02:00.0"))
	require.ErrorIs(t, err, gpuerr.Denied)
	require.ErrorContains(t, err, "console")
	_, err = c.Claim(address(t, "00:1c.0"))
	require.ErrorIs(t, err, gpuerr.Denied)
	_, err = c.Claim(address(t, "05:00.0"))
	require.ErrorIs(t, err, gpuerr.NoDevice)

	tree.RemoveDriver("vfio-pci")
	tree.Add(gpu("0000:03:00.0", 4, "nvidia"))
	_, err = c.Claim(address(t, "03:00.0"))
	require.ErrorContains(t, err, "modprobe vfio-pci")
	require.Empty(t, tree.Writes())
	require.NoFileExists(t, filepath.Join(dir, "claims.json"))
}

// TestClaimUndoes: a claim that fails leaves the function to its driver.
func TestClaimUndoes(t *testing.T) {
	for _, attribute := range []string{"driver_override", "unbind", "drivers_probe"} {
		tree := pcitest.New(t)
		tree.Add(gpu("0000:01:00.0", 14, "nvidia"))
		tree.Fail(attribute, unix.EACCES)
		a := address(t, "01:00.0")
		dir := t.TempDir()
		c := claimer(t, tree, dir)
		_, err := c.Claim(a)
		require.ErrorIs(t, err, gpuerr.IO, attribute)
		require.ErrorContains(t, err, "as root")
		if attribute == "drivers_probe" { // it could not be undone either, so it is not forgotten
			require.Len(t, c.Claims(), 1)
			tree.Fail(attribute, nil)
			c = next(t, c, tree, dir)
			r, err := c.Reconcile(nil)
			require.NoError(t, err)
			require.Len(t, r.Released, 1)
		}
		require.Equal(t, "nvidia", tree.Driver("0000:01:00.0"), attribute)
		require.Equal(t, "(null)", tree.Override("0000:01:00.0"), attribute)
		require.Empty(t, next(t, c, tree, dir).Claims())
	}
}

func TestNoJournalNoClaim(t *testing.T) {
	tree, dir := pcitest.New(t), t.TempDir()
	tree.Add(gpu("0000:01:00.0", 14, "nvidia"))
	_, err := pci.NewClaimer(tree.Bus(), filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, gpuerr.IO)

	c := claimer(t, tree, dir)
	require.NoError(t, os.RemoveAll(dir))
	_, err = c.Claim(address(t, "01:00.0"))
	require.ErrorIs(t, err, gpuerr.IO)
	require.Empty(t, tree.Writes())
}

func TestDamagedJournalIsNotIgnored(t *testing.T) {
	of := `"id":"10de:2330","boot":"` + pcitest.BootID(1) + `"`
	for _, text := range []string{"", "{", `{"version":1,"claims":[]}`, `{"version":2,"claims":[]} x`, `{"version":2,"other":1}`,
		`{"version":2,"claims":[{"address":"01:00.0",` + of + `,"former":"../x","override":""}]}`,
		`{"version":2,"claims":[{"address":"01:00.0",` + of + `,"former":"","override":""},{"address":"0000:01:00.0",` + of + `,"former":"","override":""}]}`,
		`{"version":2,"claims":[{"address":"nowhere",` + of + `,"former":"","override":""}]}`,
		`{"version":2,"claims":[{"address":"01:00.0","id":"10de:2330","boot":"","former":"","override":""}]}`,
		`{"version":2,"claims":[{"address":"01:00.0","former":"","override":""}]}`} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "claims.json"), []byte(text), 0o600))
		_, err := pci.NewClaimer(&pci.Bus{Sys: t.TempDir()}, dir)
		require.ErrorIs(t, err, gpuerr.IO, text)
		require.ErrorContains(t, err, "move it away")
		require.NoError(t, os.Remove(filepath.Join(dir, "claims.json")))
		c, err := pci.NewClaimer(&pci.Bus{Sys: t.TempDir()}, dir)
		require.NoError(t, err, "the folder is not kept locked")
		require.NoError(t, c.Close())
	}
}

// TestKernelThatDoesNotComeBack: a driver that does not let go ends in an error.
func TestKernelThatDoesNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := pcitest.New(t)
		tree.Add(gpu("0000:01:00.0", 14, "nvidia"))
		release := make(chan struct{})
		bus := tree.Bus()
		write := bus.Write
		bus.Write = func(path, value string) error {
			if filepath.Base(path) == "unbind" {
				<-release
				return nil
			}
			return write(path, value)
		}
		c, err := pci.NewClaimer(bus, t.TempDir())
		require.NoError(t, err)
		_, err = c.Claim(address(t, "01:00.0"))
		require.ErrorContains(t, err, "does not let go")
		close(release)
		require.NoError(t, c.Close())
	})
}

// A function that leaves the host while it is given back is forgotten.
func TestReleaseOfOneThatLeaves(t *testing.T) {
	for _, at := range []string{"driver_override", "unbind", "drivers_probe"} {
		tree := pcitest.New(t)
		tree.Add(gpu("0000:01:00.0", 14, "nvidia"))
		bus := tree.Bus()
		write, releasing := bus.Write, false
		bus.Write = func(path, value string) error {
			if releasing && filepath.Base(path) == at {
				tree.Remove("0000:01:00.0")
				return unix.ENOENT
			}
			return write(path, value)
		}
		c, err := pci.NewClaimer(bus, t.TempDir())
		require.NoError(t, err)
		a := address(t, "01:00.0")
		_, err = c.Claim(a)
		require.NoError(t, err)
		releasing = true
		driver, err := c.Release(a)
		require.NoError(t, err, at)
		require.Empty(t, driver)
		require.Empty(t, c.Claims())
		require.NoError(t, c.Close())
	}
}
