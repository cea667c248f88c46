package manager

import (
	"context"
	"fmt"
)

// runTroubleWatch ends the epoch when the function reports an error: its sessions
// cannot rely upon what it does. The reset between two epochs ends the trouble, too.
func (d *device) runTroubleWatch(ctx context.Context, doom *doom) {
	select {
	case err := <-d.function.Trouble():
		doom.say(fmt.Errorf("the function is in trouble: %w", err))
	case <-ctx.Done():
	}
}
