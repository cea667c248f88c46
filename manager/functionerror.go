package manager

import (
	"context"
	"fmt"
)

// runErrorWatch ends the epoch when the function reports an error: sessions cannot rely on a
// faulty function. The reset between two epochs clears the error.
func (d *device) runErrorWatch(ctx context.Context, failure *epochFailure) {
	select {
	case err := <-d.function.Trouble():
		failure.report(fmt.Errorf("the function is in trouble: %w", err))
	case <-ctx.Done():
	}
}
