package vk

import "fmt"

// Results of calls.
const (
	Success           = 0
	NotReady          = 1
	Timeout           = 2
	OutOfHostMemory   = -1
	OutOfDeviceMemory = -2
	DeviceLost        = -4
	OutOfPoolMemory   = -1000069000
	FragmentedPool    = -12
)

var resultNames = map[int32]string{
	NotReady: "NOT_READY", Timeout: "TIMEOUT", OutOfHostMemory: "OUT_OF_HOST_MEMORY", OutOfDeviceMemory: "OUT_OF_DEVICE_MEMORY",
	-3: "INITIALIZATION_FAILED", DeviceLost: "DEVICE_LOST", -5: "MEMORY_MAP_FAILED", -6: "LAYER_NOT_PRESENT",
	-7: "EXTENSION_NOT_PRESENT", -8: "FEATURE_NOT_PRESENT", -9: "INCOMPATIBLE_DRIVER", -10: "TOO_MANY_OBJECTS",
	FragmentedPool: "FRAGMENTED_POOL", -13: "UNKNOWN", OutOfPoolMemory: "OUT_OF_POOL_MEMORY",
	-1000072003: "INVALID_EXTERNAL_HANDLE", -1000012000: "INVALID_SHADER_NV",
}

// Result is a VkResult that is an error.
type Result struct {
	Call string
	Code int32
}

// Error names the call and the code.
func (r *Result) Error() string {
	name, ok := resultNames[r.Code]
	if !ok {
		return fmt.Sprintf("%s: VkResult %d", r.Call, r.Code)
	}
	return fmt.Sprintf("%s: VK_%s (%d)", r.Call, name, r.Code)
}
