package vulkan

import "os"

// ReadyMark says that the process was started with a driver's environment.
const ReadyMark = "CAPGPU_ENGINE_TEST"

// Ready reports whether there is a driver to test.
func Ready() bool { return os.Getenv(ReadyMark) != "" }
