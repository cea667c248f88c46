// E-GPU-4021: bool does not satisfy accel.Scalar
package main

import "capgpu/accel"

func bind(v bool) accel.Argument { return accel.Value(v) }
