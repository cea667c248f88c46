// E-GPU-4001: Host does not satisfy accel.DeviceSide
package main

import "capgpu/accel"

func bind(b *accel.Buffer[float32, accel.Host]) accel.Argument { return accel.Arg(b) }
