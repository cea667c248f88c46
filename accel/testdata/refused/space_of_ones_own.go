// the spaces are closed: mine does not satisfy accel.Space
package main

import "capgpu/accel"

type mine struct{}

var b *accel.Buffer[float32, mine]
