package vulkan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/program"
)

// An error of the library is the end of one order, and says which resource is short; a lost
// device is the end of all.
func TestErrors(t *testing.T) {
	d := opened(t)
	result := func(code int32) error { return &vk.Result{Call: "vkSomething", Code: code} }
	err := d.failed("do it", 4096, result(vk.OutOfDeviceMemory))
	require.ErrorIs(t, err, gpuerr.Quota)
	require.NotErrorIs(t, err, host.ErrLost)
	require.ErrorContains(t, err, "do it: E_QUOTA deviceMemory asked=4096")
	require.ErrorContains(t, err, "vkSomething: VK_OUT_OF_DEVICE_MEMORY (-2)")
	require.ErrorIs(t, d.failed("do it", 1, result(vk.OutOfHostMemory)), gpuerr.Quota)
	require.ErrorIs(t, d.failed("do it", 1, result(-3)), gpuerr.Internal)
	require.ErrorContains(t, d.failed("do it", 1, result(-77)), "VkResult -77")

	l, err := d.record(nil)
	require.NoError(t, err)
	require.NoError(t, d.Submit(l))
	_, err = d.Wait()
	require.NoError(t, err)
	lost := d.failed("do it", 1, result(vk.DeviceLost))
	require.ErrorIs(t, lost, host.ErrLost)
	_, err = d.Wait()
	require.ErrorIs(t, err, host.ErrLost)
	require.ErrorIs(t, d.Submit(l), host.ErrLost)
	require.NoError(t, l.Free())
}

// A program that a device cannot have is refused before the library sees it.
func TestProgramsOfOtherDevices(t *testing.T) {
	d := opened(t)
	module, err := kernels.ReadFile("kernels/fill.spv")
	require.NoError(t, err)
	for name, p := range map[string]wire.Pipeline{
		"push constants":          {Bindings: 1, PushBytes: d.MaxPushBytes + 4},
		"no number of the entry":  {Bindings: 1},
		"odd push constants":      {Bindings: 1, PushBytes: 18},
		"more bindings than here": {Bindings: d.MaxBindings, PushBytes: 16},
	} {
		p.Module, p.Entry = module, "main"
		_, err := d.Compile(&p)
		require.ErrorIs(t, err, gpuerr.LaunchLimit, name)
	}
	_, err = d.Compile(&wire.Pipeline{Module: module[:24], Entry: "main", Bindings: 1, PushBytes: 16})
	require.Error(t, err)
}

// Constants have the sizes of their types, whatever the order of their numbers.
func TestConstants(t *testing.T) {
	entries, data := specialise([]program.Constant{{ID: 9, Value: 0x1122334455667788}, {ID: 4, Value: 7}, {ID: 3, Value: 1}},
		map[uint32]uint32{4: 4, 9: 8})
	require.Equal(t, []vk.SpecializationMapEntry{{ID: 9, Off: 0, Size: 8}, {ID: 4, Off: 8, Size: 4}}, entries)
	require.Equal(t, words(0x55667788, 0x11223344, 7, 0), data)
}
