// a copy by a stream needs pinned memory: Host does not satisfy accel.Async
package main

import "capgpu/accel"

func load(s *accel.Stream[accel.Device], dst *accel.Buffer[float32, accel.Device], src *accel.Buffer[float32, accel.Host]) {
	accel.Copy(s, dst, src)
}
