package backendtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
)

// chain submits the next job from each completion, as the core does.
type chain struct {
	*sink
	d    *device
	job  backend.Job
	left int // touched by one completion at a time
	done chan struct{}
	errs []error
}

// Complete implements backend.Sink.
func (c *chain) Complete(done backend.Completion) {
	c.sink.Complete(done)
	c.left--
	if c.left == 0 {
		close(c.done)
		return
	}
	c.job.ID++
	if err := c.d.Submit(&c.job); err != nil {
		c.errs = append(c.errs, err)
		close(c.done)
	}
}

func testReentrant(t *testing.T, d *device) {
	jobs := max(d.rounds(500), 3)
	c := &chain{sink: d.sink, d: d, left: jobs, done: make(chan struct{}), job: *d.fill(d.span(make([]byte, 64)), 1)}
	require.NoError(t, d.Start(c))
	require.NoError(t, d.Submit(&c.job))
	select {
	case <-c.done:
	case <-time.After(patience):
		require.FailNow(t, "the chain of jobs broke")
	}
	require.Empty(t, c.errs)
	require.Len(t, d.sink.ids(), jobs)
	d.sink.onceEach(t)
}
