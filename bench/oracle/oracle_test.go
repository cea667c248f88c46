package oracle_test

import (
	"os"
	"testing"

	"capgpu/bench/vulkan"
)

func TestMain(m *testing.M) {
	vulkan.Main()
	os.Exit(m.Run())
}
