// one element type: type *accel.Buffer[int32, accel.Unified] of src does not match
package main

import "capgpu/accel"

func load(s *accel.Stream[accel.Device], dst *accel.Buffer[float32, accel.Device], src *accel.Buffer[int32, accel.Unified]) {
	accel.Copy(s, dst, src)
}
