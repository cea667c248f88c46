package vulkan_test

import (
	"testing"

	"capgpu/engine/vulkan"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/host/devicetest"
)

// TestDevice runs the suite of devices, with local memory also where that is the host's.
func TestDevice(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) host.Device { return device(t, vulkan.Options{Local: true}) })
}
