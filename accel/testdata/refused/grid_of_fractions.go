// E-GPU-4020: cannot use 1.5 (untyped float constant) as uint32 value
package main

import "capgpu/accel"

var launch = accel.Launch{Grid: [3]uint32{1.5}}
