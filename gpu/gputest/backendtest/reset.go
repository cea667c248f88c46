package backendtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

var resetTests = []test{
	{name: "ResetIdle", run: testResetIdle},
	{name: "ResetStopsEverything", run: testResetAll, needs: []string{needsHold}},
	{name: "NoSpanIsTouchedAfter", run: testResetTouches},
	{name: "ResetConcurrent", run: testResetConcurrent},
	{name: "CloseStopsEverything", run: testClose, needs: []string{needsHold}},
}

func testResetIdle(t *testing.T, d *device) {
	d.reset()
	d.reset()
	require.Equal(t, outcome.Success, d.run(d.fill(d.span(make([]byte, 64)), 1)))
}

func testResetAll(t *testing.T, d *device) {
	s := d.span(make([]byte, 64))
	for range d.rounds(20) {
		before := len(d.sink.ids())
		d.spin(t)
		for range d.Info().Limits.MaxJobs - 1 {
			require.NoError(t, d.Submit(d.fill(s, 1)))
		}
		d.reset()
		require.Len(t, d.sink.ids(), before, "nothing before the spinning job could end")
		require.Equal(t, outcome.Success, d.run(d.fill(s, 2)))
		require.Len(t, d.sink.ids(), before+1, "a job of before the reset was completed after it")
		sameBytes(t, fillReference(2, 64), s.Host)
	}
	d.sink.onceEach(t)
}

func testResetTouches(t *testing.T, d *device) {
	s := d.watched(d.most(8 << 20))
	for round := range d.rounds(10) {
		for i := range d.Info().Limits.MaxJobs {
			require.NoError(t, d.Submit(d.fill(s, uint32(100+i))))
		}
		if round%2 == 0 { // reset in the middle of the work as well as at its start
			d.sink.wait(t, d.lastID-backend.JobID(d.Info().Limits.MaxJobs-1))
		}
		d.reset()
		completed := len(d.sink.ids())
		for i := range s.Host {
			s.Host[i] = 0xee
		}
		tail := d.span(make([]byte, 64))
		require.Equal(t, outcome.Success, d.run(d.fill(tail, 1)))
		require.Len(t, d.sink.ids(), completed+1)
		sameBytes(t, fillReference(0xeeeeeeee, len(s.Host)), s.Host)
	}
	d.sink.onceEach(t)
}

func testResetConcurrent(t *testing.T, d *device) {
	s := d.span(make([]byte, d.most(64<<10)))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range d.rounds(20) {
				if err := d.Reset(ctx); err != nil {
					t.Errorf("Reset: %v", err)
				}
			}
		})
	}
	for range 200 {
		job := d.fill(s, 1)
		if err := d.Submit(job); err != nil {
			require.Contains(t, []gpuerr.Code{gpuerr.Busy, gpuerr.QueueFull}, gpuerr.CodeOf(err), "%v", err)
		}
		d.Cancel(job.ID)
	}
	wg.Wait()
	d.reset()
	completed := len(d.sink.ids())
	require.Equal(t, outcome.Success, d.run(d.fill(s, 3)))
	require.Len(t, d.sink.ids(), completed+1)
	d.sink.onceEach(t)
}

func testClose(t *testing.T, d *device) {
	d.spin(t)
	s := d.span(make([]byte, 64))
	require.NoError(t, d.Submit(d.fill(s, 1)))
	began := time.Now()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := d.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	wg.Wait()
	require.Less(t, time.Since(began), d.Info().Limits.CancelBound+slack)
	require.Empty(t, d.sink.ids())
	sameBytes(t, make([]byte, 64), s.Host)
	require.Error(t, d.Submit(d.fill(s, 1)))
	require.Error(t, d.Reset(t.Context()))
	d.Cancel(1)
	require.NotEmpty(t, d.Programs(), "what is static can still be asked")
}
