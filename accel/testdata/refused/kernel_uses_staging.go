// E-GPU-4006: Staging does not satisfy accel.DeviceSide
package main

import "capgpu/accel"

func bind(b *accel.Buffer[float32, accel.Staging]) accel.Argument { return accel.Arg(b) }
