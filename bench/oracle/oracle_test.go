package oracle_test

import (
	"os"
	"testing"

	"capgpu/bench/opencl"
	"capgpu/bench/vulkan"
)

func TestMain(m *testing.M) {
	vulkan.Main()
	opencl.Main()
	os.Exit(m.Run())
}
