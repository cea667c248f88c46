// E-GPU-4001: Device does not satisfy accel.HostSide
package main

import "capgpu/accel"

func read(b *accel.Buffer[float32, accel.Device]) ([]float32, error) { return accel.Slice(b) }
