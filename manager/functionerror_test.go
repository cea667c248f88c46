package manager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
)

// An error that the function reports ends its driver, and does not wedge the function: the
// next driver gets it after a reset.
func TestTrouble(t *testing.T) {
	b := newBus(t, addressA)
	f := b.functions[addressA]
	w := startOn(t, b, nil)
	w.driverOf("edu0", 1)
	c := w.dial("default")
	s, _, _ := w.dirty(c, 0)
	f.trouble <- gpuerr.New(gpuerr.IO, "%s reported an error (PCIe AER; the kernel's log says which)", addressA)
	<-s.Done()
	w.driverOf("edu0", 2)
	w.await(c, 0, client.Ready)
	require.Contains(t, f.did(), "Quiesce")
	require.Zero(t, w.log.kinds()["device.removed"])
	require.Zero(t, w.log.kinds()["device.wedged"])
	s.Close(within(t))
}
