package gpu

import (
	"context"
	"fmt"
	"runtime/debug"

	"capgpu/gpu/backend"
)

// guardedBackend makes a panic of the backend, in a method that the engine calls,
// the loss of the device: nobody can say what the device does then. Close is not
// guarded: what it should have stopped would be reused.
type guardedBackend struct {
	backend.Backend
	reactor *reactor
}

// Submit leaves it open whether the device has the job, so the job counts as taken:
// the loss ends it.
func (g *guardedBackend) Submit(job *backend.Job) error {
	defer g.caught("Submit", nil)
	return g.Backend.Submit(job)
}

func (g *guardedBackend) Cancel(id backend.JobID) {
	defer g.caught("Cancel", nil)
	g.Backend.Cancel(id)
}

func (g *guardedBackend) Reset(ctx context.Context) (err error) {
	defer g.caught("Reset", &err)
	return g.Backend.Reset(ctx)
}

// caught is deferred.
func (g *guardedBackend) caught(method string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	reason := fmt.Sprintf("a bug of the backend, in %s: %v", method, p)
	g.reactor.dev.log.Error("the device is given up", "cause", reason, "stack", string(debug.Stack()))
	g.reactor.lose(reason)
	if err != nil {
		*err = fmt.Errorf("%s", reason)
	}
}
