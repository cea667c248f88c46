// a transfer changes the state: type *accel.Buffer[float32, accel.Host] of b does not match
package main

import (
	"context"

	"capgpu/accel"
)

func move(ctx context.Context, b *accel.Buffer[float32, accel.Host]) { accel.ToHost(ctx, b) }
