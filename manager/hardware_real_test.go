package manager

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/vfio"
	"capgpu/gpuerr"
	"capgpu/internal/pci"
	"capgpu/internal/pci/pcitest"
)

const testFunction = "0000:01:00.0"

// pretended returns hardware on a tree like sysfs. To open its IOMMU group fails with err.
func pretended(t *testing.T, tree *pcitest.Tree, dir string, err error) *pciHardware {
	t.Helper()
	h := NewHardware(dir, slog.New(slog.NewTextHandler(t.Output(), nil))).(*pciHardware)
	h.bus = tree.Bus()
	h.container = func(int) (vfio.Container, error) { return nil, err }
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

func (h *pciHardware) claims() *pci.Claimer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claimer
}

// TestHeldFunctionIsNotTaken: a function that an earlier manager has claimed and a process
// still uses is refused, and not given back to its former driver.
func TestHeldFunctionIsNotTaken(t *testing.T) {
	tree, dir := pcitest.New(t), t.TempDir()
	tree.Add(pcitest.Function{Address: testFunction, Vendor: 0x10de, Device: 0x2330, Class: 0x030200, Driver: "nvidia", Group: 14})
	p := DevPolicy().Device.functionOf("gpu0", testFunction)
	p.Optional = true // the host is not checked
	held := gpuerr.New(gpuerr.Busy, "IOMMU group 14 is held by gpu-service (pid 812)")

	first := pretended(t, tree, dir, held)
	_, err := first.Prepare([]FunctionPolicy{p}, false)
	require.NoError(t, err)
	_, err = first.Open(p, nil)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.Equal(t, "nvidia", tree.Driver(testFunction), "what was taken just now goes back")
	a, err := pci.ParseAddress(testFunction)
	require.NoError(t, err)
	_, err = first.claims().Claim(a)
	require.NoError(t, err)
	require.NoError(t, first.Close()) // it crashes; a process of it lives on

	second := pretended(t, tree, dir, held)
	_, err = second.Prepare([]FunctionPolicy{p}, false)
	require.NoError(t, err)
	_, err = second.Open(p, nil)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.Equal(t, pci.Driver, tree.Driver(testFunction))
	require.True(t, second.claims().Claimed(a), "it is not forgotten either")
}

// TestOneManagerOfAState: a second manager does not touch the claims of the first.
func TestOneManagerOfAState(t *testing.T) {
	tree, dir := pcitest.New(t), t.TempDir()
	first := pretended(t, tree, dir, nil)
	_, err := first.Prepare(nil, false)
	require.NoError(t, err)
	second := pretended(t, tree, dir, nil)
	_, err = second.Prepare(nil, false)
	require.ErrorAs(t, err, new(*pci.HeldError))
	require.NoError(t, first.Close())
	_, err = second.Prepare(nil, false)
	require.NoError(t, err)
}
