package manager_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/manager"
)

// Two functions have two drivers, and the end of one does not affect the other.
func TestTwoFunctions(t *testing.T) {
	b := newBus(t, addressA, addressB)
	w := startOn(t, b, nil)
	_, first := w.driverOf("edu0", 1)
	_, second := w.driverOf("edu1", 1)
	require.NotEqual(t, first, second)
	c := w.dial("default")
	devices, err := c.Devices(within(t))
	require.NoError(t, err)
	require.Len(t, devices, 2)
	for i, d := range devices {
		require.EqualValues(t, i, d.Index)
		require.Equal(t, []string{"edu0", "edu1"}[i], d.Name)
		require.Equal(t, []string{addressA, addressB}[i], d.PCIAddress)
	}
	a, _, _ := w.dirty(c, 0)
	s, _, mem := w.dirty(c, 1)
	for epoch := uint64(2); epoch < 5; epoch++ {
		kill(t, first)
		_, first = w.driverOf("edu0", epoch)
	}
	<-a.Done()
	require.NoError(t, addVectors(within(t), s))
	require.EqualValues(t, 0x5a, mem[0])
	epoch, pid := w.driverOf("edu1", 1)
	require.EqualValues(t, 1, epoch)
	require.Equal(t, second, pid)
	require.NoError(t, w.Check())
	require.NoError(t, s.Close(within(t)))
	a.Close(within(t))
	require.Eventually(t, func() bool { return w.held(ledger.DeviceMemory) == 0 }, patience, time.Millisecond)
}

// A tenant sees the devices that the policy gives it, under the index that all tenants use.
// The others do not exist for it.
func TestTenantDevices(t *testing.T) {
	b := newBus(t, addressA, addressB)
	w := startOn(t, b, func(c *manager.Config) {
		c.Policy.Tenant("limited").Devices = []string{"edu1"}
	})
	w.driverOf("edu0", 1)
	w.driverOf("edu1", 1)
	c := w.dial("limited")
	devices, err := c.Devices(within(t))
	require.NoError(t, err)
	require.Len(t, devices, 1)
	require.Equal(t, "edu1", devices[0].Name)
	require.EqualValues(t, 1, devices[0].Index)
	s, err := c.Open(within(t), 1)
	require.NoError(t, err)
	defer s.Close(within(t))
	_, err = c.Status(within(t), 1)
	require.NoError(t, err)
	for call, ask := range map[string]func(index uint32) error{
		"Open":      func(i uint32) error { _, err := c.Open(within(t), i); return err },
		"NextState": func(i uint32) error { _, err := c.NextState(within(t), i, 0); return err },
		"Status":    func(i uint32) error { _, err := c.Status(within(t), i); return err },
	} {
		foreign, none := ask(0), ask(2)
		require.ErrorIs(t, foreign, gpuerr.NoDevice, call)
		require.ErrorIs(t, none, gpuerr.NoDevice, call)
		require.Equal(t, gpuerr.From(none).Msg, gpuerr.From(ask(2)).Msg)
		require.NotContains(t, foreign.Error(), "edu0")
		require.Equal(t, len(none.Error()), len(foreign.Error()), "%s: the same words, but for the number", call)
	}
	records := w.log.texts()
	for _, r := range records {
		require.NotContains(t, r, "tenant=limited mock0")
	}
	// A change of its limits reaches the drivers of its devices.
	l := w.policyLimits("limited")
	l[ledger.Buffers] = 1
	w.setLimits("limited", l)
	_, err = s.CreateBuffer(within(t), 4096, client.Storage)
	require.NoError(t, err)
	_, err = s.CreateBuffer(within(t), 4096, client.Storage)
	require.ErrorIs(t, err, gpuerr.Quota)
}

// A missing function is named in the error, unless it is optional.
func TestMissingFunctions(t *testing.T) {
	b := newBus(t, addressA, addressB)
	b.refuse[addressA] = gpuerr.New(gpuerr.Denied, "%s shares its IOMMU group with a disk", addressA)
	defer b.functions[addressA].Close()
	policy := manager.DevPolicy()
	policy.Functions = []manager.FunctionPolicy{functionPolicy("edu0", addressA, policy), functionPolicy("edu1", addressB, policy)}
	cfg := manager.Config{
		Policy: policy, RunDir: filepath.Join(shortDir(t), "run"), Audit: &memoryLog{}, Hardware: b,
		DriverPath: program("gpu-mock"), GatePath: program("gpu-gate"),
	}
	_, err := manager.Start(cfg)
	require.ErrorContains(t, err, "open function edu0 (0000:01:00.0): E_DENIED: 0000:01:00.0 shares its IOMMU group with a disk")
	require.NotContains(t, b.functions[addressB].did(), "Begin")

	b.functions[addressB] = newScripted(t, addressB)
	w := startOn(t, b, func(c *manager.Config) { c.Policy.Functions[0].Optional = true })
	w.driverOf("edu1", 1)
	devices, err := w.dial("default").Devices(within(t))
	require.NoError(t, err)
	require.Len(t, devices, 1)
	require.EqualValues(t, 1, devices[0].Index, "each has its place in the policy")
	w.stop()

	b = newBus(t)
	cfg.Policy.Functions[0].Optional, cfg.Policy.Functions[1].Optional = true, true
	cfg.Hardware, cfg.Audit = b, &memoryLog{}
	_, err = manager.Start(cfg)
	require.ErrorIs(t, err, gpuerr.NoDevice)
	cfg.Hardware, cfg.Audit = nil, &memoryLog{}
	_, err = manager.Start(cfg)
	require.ErrorContains(t, err, "no Hardware")
}

// "claim": "all" also takes the functions that it finds, and skips those that it cannot open.
func TestClaimAll(t *testing.T) {
	const third = "0000:03:00.0"
	b := newBus(t, addressA, addressB)
	b.found = []string{addressB, third}
	w := start(t, func(c *manager.Config) {
		c.Hardware, c.ServicePath = b, program("gpu-mock")
		c.Policy.ClaimAll = true
		c.Policy.Functions = []manager.FunctionPolicy{functionPolicy("edu0", addressA, c.Policy)}
	})
	w.driverOf("edu0", 1)
	w.driverOf(addressB, 1)
	devices, err := w.dial("default").Devices(within(t))
	require.NoError(t, err)
	require.Len(t, devices, 2)
	require.Equal(t, addressB, devices[1].Name)
}

// A manager that could not start closes the functions that it had opened.
func TestFailedStartClosesFunctions(t *testing.T) {
	b := newBus(t, addressA)
	policy := manager.DevPolicy()
	policy.Functions = []manager.FunctionPolicy{functionPolicy("edu0", addressA, policy), functionPolicy("edu1", addressB, policy)}
	_, err := manager.Start(manager.Config{
		Policy: policy, RunDir: filepath.Join(shortDir(t), "run"), Audit: &memoryLog{}, Hardware: b,
		DriverPath: program("gpu-mock"), GatePath: program("gpu-gate"),
	})
	require.ErrorIs(t, err, gpuerr.NoDevice)
	require.Equal(t, []string{"Close"}, b.functions[addressA].did())
}
