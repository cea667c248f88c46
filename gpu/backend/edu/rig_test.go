package edu_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/edu"
	"capgpu/gpu/backend/edu/edutest"
	"capgpu/outcome"
)

// A transfer takes the model, as it takes the device, so long.
const transfer = 100 * time.Millisecond

// rig is a device on a model of it, in fake time.
type rig struct {
	t      *testing.T
	m      *edutest.Model
	d      *edu.Device
	lastID backend.JobID

	mu        sync.Mutex
	completed []backend.Completion
	gone      []string
}

// Complete implements backend.Sink.
func (r *rig) Complete(c backend.Completion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.completed = append(r.completed, c)
}

// DeviceGone implements backend.Sink.
func (r *rig) DeviceGone(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = append(r.gone, reason)
}

func (r *rig) heard() (completed []backend.Completion, gone []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.completed, r.gone
}

// bubble runs f on a started device. Nothing may be left of it.
func bubble(t *testing.T, o edutest.Options, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		m, err := edutest.New(o)
		require.NoError(t, err)
		d, err := edu.New(m.Grants())
		require.NoError(t, err)
		r := &rig{t: t, m: m, d: d}
		t.Cleanup(func() {
			require.NoError(t, d.Close())
			require.NoError(t, m.Close())
		})
		require.NoError(t, d.Start(r))
		f(t, r)
	})
}

func (r *rig) span(data []byte) backend.Span {
	r.t.Helper()
	s := edutest.Span(r.t, r.m.Grants().DMA, len(data))
	copy(s.Host, data)
	return s
}

func (r *rig) submit(job *backend.Job) *backend.Job {
	r.t.Helper()
	r.lastID++
	job.ID = r.lastID
	require.NoError(r.t, r.d.Submit(job))
	return job
}

// run submits a job and waits until all is quiet, but for the watch.
func (r *rig) run(job *backend.Job) backend.Completion {
	r.t.Helper()
	return r.await(r.submit(job))
}

// await waits for a completion, a minute of the device's time at most.
func (r *rig) await(job *backend.Job) backend.Completion {
	r.t.Helper()
	for range 60_000 {
		synctest.Wait()
		completed, _ := r.heard()
		for _, c := range completed {
			if c.ID == job.ID {
				return c
			}
		}
		time.Sleep(time.Millisecond)
	}
	require.FailNow(r.t, "no completion")
	return backend.Completion{}
}

func copyJob(dst, src backend.Span) *backend.Job {
	return &backend.Job{Op: backend.OpCopy, Spans: []backend.Span{dst, src}}
}

func fillJob(s backend.Span, pattern uint32) *backend.Job {
	return &backend.Job{Op: backend.OpFill, Spans: []backend.Span{s}, Pattern: pattern}
}

func (r *rig) reset(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.d.Reset(ctx)
}

// text is n bytes of which no two steps are alike.
func text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>11*31 + i*7 + i>>8 + 1)
	}
	return b
}

func zeros(n int) []byte { return bytes.Repeat([]byte{0}, n) }

var (
	deviceError = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}
	launchLimit = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}
	cancelled   = outcome.Outcome{Kind: outcome.Cancelled}
)
