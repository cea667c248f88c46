// E-GPU-4021: string does not satisfy accel.Scalar
package main

import "capgpu/accel"

func bind(s string) accel.Argument { return accel.Value(s) }
