package pci_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/pci"
	"capgpu/internal/pci/pcitest"
)

const gpuAddress = "0000:01:00.0"

// crashed returns a host with a GPU of nvidia's claimed by a dead device-manager, and a
// function that makes the next claimer.
func crashed(t *testing.T) (tree *pcitest.Tree, a pci.Address, again func() *pci.Claimer) {
	tree, dir := pcitest.New(t), t.TempDir()
	tree.Add(gpu(gpuAddress, 14, "nvidia"))
	a = address(t, "01:00.0")
	c := claimer(t, tree, dir)
	_, err := c.Claim(a)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	return tree, a, func() *pci.Claimer { return claimer(t, tree, dir) }
}

func override(t *testing.T, tree *pcitest.Tree, value string) {
	t.Helper()
	require.NoError(t, tree.Bus().Write(tree.Path("bus/pci/devices", gpuAddress, "driver_override"), value))
}

// TestReconcile: after a crash at any moment the next run knows the former driver.
func TestReconcile(t *testing.T) {
	t.Run("wanted", func(t *testing.T) {
		_, a, again := crashed(t)
		c := again()
		r, err := c.Reconcile([]pci.Address{a})
		require.NoError(t, err)
		require.Equal(t, pci.Reconciled{Adopted: []pci.Claim{claimOf(a, "nvidia")}}, r)
		require.True(t, c.Claimed(a))
		claim, err := c.Claim(a)
		require.NoError(t, err)
		require.Equal(t, "nvidia", claim.Former)
		driver, err := c.Release(a)
		require.NoError(t, err)
		require.Equal(t, "nvidia", driver)
	})
	t.Run("not wanted", func(t *testing.T) {
		tree, a, again := crashed(t)
		r, err := again().Reconcile(nil)
		require.NoError(t, err)
		require.Len(t, r.Released, 1)
		require.Equal(t, a, r.Released[0].Address)
		require.Equal(t, "nvidia", tree.Driver(gpuAddress))
	})
	t.Run("gone", func(t *testing.T) {
		tree, a, again := crashed(t)
		tree.Remove(gpuAddress)
		c := again()
		r, err := c.Reconcile([]pci.Address{a})
		require.NoError(t, err)
		require.Len(t, r.Dropped, 1)
		require.Empty(t, c.Claims())
	})
	t.Run("crashed before the probe", func(t *testing.T) {
		tree, a, again := crashed(t)
		require.NoError(t, os.Remove(tree.Path("bus/pci/devices", gpuAddress, "driver")))
		_, err := again().Reconcile([]pci.Address{a})
		require.NoError(t, err)
		require.Equal(t, "nvidia", tree.Driver(gpuAddress))
		require.Equal(t, "(null)", tree.Override(gpuAddress))
	})
	t.Run("crashed before the probe, claimed again", func(t *testing.T) {
		tree, a, again := crashed(t)
		require.NoError(t, os.Remove(tree.Path("bus/pci/devices", gpuAddress, "driver")))
		claim, err := again().Claim(a)
		require.NoError(t, err)
		require.Equal(t, claimOf(a, "nvidia"), claim)
	})
	t.Run("driver unloaded", func(t *testing.T) {
		tree, a, again := crashed(t)
		tree.RemoveDriver("nvidia")
		c := again()
		_, err := c.Reconcile(nil)
		require.ErrorContains(t, err, "nvidia")
		require.Len(t, c.Claims(), 1, "it is not forgotten")
		claim, err := c.Claim(a) // wanted after all
		require.NoError(t, err)
		require.Equal(t, claimOf(a, "nvidia"), claim)
		require.Equal(t, pci.Driver, tree.Driver(gpuAddress))
		require.Equal(t, pci.Driver, tree.Override(gpuAddress))
	})
}

// TestReconcileFinishesARelease: the crash of a manager that was giving a function back does
// not look like an operator's wish to keep it on vfio-pci.
func TestReconcileFinishesARelease(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		tree, a, again := crashed(t)
		tree.Fail("unbind", unix.EIO)
		c := again()
		_, err := c.Release(a)
		require.ErrorIs(t, err, gpuerr.IO)
		require.Equal(t, "(null)", tree.Override(gpuAddress))
		require.Equal(t, pci.Driver, tree.Driver(gpuAddress))
		require.NoError(t, c.Close())
		tree.Fail("unbind", nil)

		c = again()
		if wanted { // and claimed without having been cleared up after
			claim, err := c.Claim(a)
			require.NoError(t, err)
			require.Equal(t, claimOf(a, "nvidia"), claim)
			require.Equal(t, pci.Driver, tree.Override(gpuAddress))
			require.NoError(t, c.Close())
			r, err := again().Reconcile([]pci.Address{a})
			require.NoError(t, err)
			require.Equal(t, []pci.Claim{claim}, r.Adopted)
			continue
		}
		r, err := c.Reconcile([]pci.Address{a})
		require.NoError(t, err)
		require.Len(t, r.Released, 1)
		require.Equal(t, "nvidia", tree.Driver(gpuAddress))
	}
}

// TestStaleClaimIsDropped: a claim of an earlier boot, or of a function that was changed
// since, is not acted upon, and its former driver does not count.
func TestStaleClaimIsDropped(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*pcitest.Tree)
		why    string
		former string // of the next claim
	}{
		// The operator has bound it to vfio-pci at boot, and it must stay there.
		{"another boot, on vfio-pci", func(tree *pcitest.Tree) {
			tree.Boot(2)
			tree.Remove(gpuAddress)
			tree.Add(gpu(gpuAddress, 14, pci.Driver))
		}, "booted since", pci.Driver},
		{"another boot, nothing else", func(tree *pcitest.Tree) { tree.Boot(2) }, "booted since", pci.Driver},
		{"another device", func(tree *pcitest.Tree) {
			tree.Remove(gpuAddress)
			other := gpu(gpuAddress, 14, pci.Driver)
			other.Device = 0x2331
			tree.Add(other)
			override(t, tree, pci.Driver)
		}, "10de:2331", pci.Driver},
		{"given to another driver", func(tree *pcitest.Tree) {
			tree.AddDriver("nouveau")
			require.NoError(t, os.Remove(tree.Path("bus/pci/devices", gpuAddress, "driver")))
			override(t, tree, "nouveau")
			require.NoError(t, tree.Bus().Write(tree.Path("bus/pci/drivers_probe"), gpuAddress))
		}, `"nouveau"`, "nouveau"},
		{"override taken away", func(tree *pcitest.Tree) { override(t, tree, "\n") }, "somebody has changed it", pci.Driver},
	} {
		for _, wanted := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				tree, a, again := crashed(t)
				c.change(tree)
				driver, set, before := tree.Driver(gpuAddress), tree.Override(gpuAddress), len(tree.Writes())
				var addresses []pci.Address
				if wanted {
					addresses = []pci.Address{a}
				}
				next := again()
				r, err := next.Reconcile(addresses)
				require.NoError(t, err)
				require.Empty(t, r.Adopted)
				require.Empty(t, r.Released)
				require.Len(t, r.Dropped, 1)
				require.Equal(t, claimOf(a, "nvidia"), r.Dropped[0].Claim)
				require.Contains(t, r.Dropped[0].Why, c.why)
				require.Empty(t, next.Claims())
				require.Len(t, tree.Writes(), before, "it is left alone")
				if !wanted {
					return
				}
				claim, err := next.Claim(a)
				require.NoError(t, err)
				require.Equal(t, c.former, claim.Former)
				_, err = next.Release(a)
				require.NoError(t, err)
				require.Equal(t, driver, tree.Driver(gpuAddress))
				require.Equal(t, set, tree.Override(gpuAddress))
			})
		}
	}
}

// TestStaleFormerIsNotAdopted: also without Reconcile.
func TestStaleFormerIsNotAdopted(t *testing.T) {
	tree, a, again := crashed(t)
	tree.Boot(2)
	claim, err := again().Claim(a)
	require.NoError(t, err)
	require.Equal(t, pci.Driver, claim.Former)
	require.Equal(t, pcitest.BootID(2), claim.Boot)
}

// TestOverrideOfAnother: an override that was set while the function was claimed stays, and
// has its effect.
func TestOverrideOfAnother(t *testing.T) {
	tree, a, again := crashed(t)
	c := again()
	tree.AddDriver("nouveau")
	override(t, tree, "nouveau")
	driver, err := c.Release(a)
	require.NoError(t, err)
	require.Equal(t, "nouveau", driver)
	require.Equal(t, "nouveau", tree.Override(gpuAddress))
}

// TestOneClaimerAtATime: two would take each other's functions.
func TestOneClaimerAtATime(t *testing.T) {
	tree, dir := pcitest.New(t), t.TempDir()
	tree.Add(gpu(gpuAddress, 14, "nvidia"))
	a := address(t, "01:00.0")
	first := claimer(t, tree, dir)
	_, err := first.Claim(a)
	require.NoError(t, err)
	_, err = pci.NewClaimer(tree.Bus(), dir)
	var held *pci.HeldError
	require.ErrorAs(t, err, &held)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.Equal(t, os.Getpid(), held.PID)
	require.ErrorContains(t, err, "--state")
	require.Equal(t, pci.Driver, tree.Driver(gpuAddress))

	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	_, err = first.Release(a)
	require.ErrorIs(t, err, gpuerr.Closed, "the journal is another's")
	require.Equal(t, pci.Driver, tree.Driver(gpuAddress))
	require.Len(t, claimer(t, tree, dir).Claims(), 1)
}

// TestReleasesSideBySide: a driver that takes its time does not keep another function
// from its own.
func TestReleasesSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := pcitest.New(t)
		bus := tree.Bus()
		slow := time.Duration(0)
		bus.Write = func(path, value string) error {
			if filepath.Base(path) == "drivers_probe" {
				time.Sleep(slow)
			}
			return tree.Bus().Write(path, value)
		}
		c, err := pci.NewClaimer(bus, t.TempDir())
		require.NoError(t, err)
		var all []pci.Address
		for i, name := range []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"} {
			tree.Add(gpu(name, 14+i, "nvidia"))
			a := address(t, name)
			_, err := c.Claim(a)
			require.NoError(t, err)
			all = append(all, a)
		}
		slow = 4 * time.Second
		start := time.Now()
		failed := make(chan error)
		for _, a := range all {
			go func() {
				_, err := c.Release(a)
				failed <- err
			}()
		}
		// The journal is free while they wait.
		synctest.Wait()
		require.Len(t, c.Claims(), 3)
		var errs []error
		for range all {
			errs = append(errs, <-failed)
		}
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, slow, time.Since(start))
		require.Empty(t, c.Claims())
		require.NoError(t, c.Close())
	})
}
