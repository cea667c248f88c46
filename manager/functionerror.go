package manager

import (
	"context"
	"fmt"
)

// runErrorWatch ends the epoch when the function reports an error: its sessions
// cannot rely upon what it does. The reset between two epochs ends the trouble, too.
func (d *device) runErrorWatch(ctx context.Context, failure *epochFailure) {
	select {
	case err := <-d.function.Trouble():
		failure.report(fmt.Errorf("the function is in trouble: %w", err))
	case <-ctx.Done():
	}
}
