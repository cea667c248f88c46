package gpu

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
)

// A bug of the backend costs its device, not the process.
func TestBackendBug(t *testing.T) {
	for _, method := range []string{"Submit", "Cancel", "Reset"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dev := &buggyBackend{handBackend: newHandBackend(), method: method}
				dev.obedient = false
				r := newMemRig(t, withBackend(dev))
				s := r.open("alice")
				b, p, q := buf(t, s, 4096), prog(t, s, "p"), r.queue(s, 16, 4096)
				q.launchFor(time.Millisecond, p, whole(b))
				require.Equal(t, lostOutcome, q.one().Outcome)
				require.ErrorContains(t, s.Err(), "a bug of the backend, in "+method)
				r.close()
			})
		})
	}
}

// buggyBackend panics in one of its methods.
type buggyBackend struct {
	*handBackend
	method string
}

func (b *buggyBackend) Submit(j *backend.Job) error {
	if b.method == "Submit" {
		panic("index out of range")
	}
	return b.handBackend.Submit(j)
}

func (b *buggyBackend) Cancel(id backend.JobID) {
	if b.method == "Cancel" {
		panic("index out of range")
	}
	b.handBackend.Cancel(id)
}

func (b *buggyBackend) Reset(ctx context.Context) error {
	if b.method == "Reset" {
		panic("index out of range")
	}
	return b.handBackend.Reset(ctx)
}
