package driver

import (
	"context"
	"runtime/debug"
	"sync"
)

// rehearsalGC is the GOGC of a rehearsal. Nobody waits for the rehearsal, and its
// garbage is freed early.
const rehearsalGC = 20

// rehearse starts the rehearsal. stop asks it to end; ended waits until nothing of
// it runs.
func (o *Options) rehearse(ctx context.Context) (stop, ended func()) {
	if o.Rehearse == nil {
		return func() {}, func() {}
	}

	ctx, stop = context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		// A rehearsal leaves only garbage. Free it early: when the process dies,
		// the kernel must take down every page that it has touched, while clients
		// wait for the next driver.
		before := debug.SetGCPercent(rehearsalGC)
		defer debug.SetGCPercent(before)
		if err := o.Rehearse(ctx); err != nil && ctx.Err() == nil {
			o.Log.Warn("the rehearsal failed", "err", err)
		}
	})

	return stop, running.Wait
}
