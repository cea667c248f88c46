// a transfer changes the state: type *accel.Buffer[float32, accel.Device] of d does not match
package main

import (
	"context"

	"capgpu/accel"
)

func move(ctx context.Context, b *accel.Buffer[float32, accel.Host]) {
	d, _ := accel.ToDevice(ctx, b)
	accel.ToDevice(ctx, d)
}
