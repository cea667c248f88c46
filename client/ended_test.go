package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

func TestRevokedQueue(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	parent := svc.Open(t)
	s, err := parent.Restrict(ctx, client.Policy{Facet: client.FacetFull})
	require.NoError(t, err)
	defer s.Close(ctx)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := q.Completions(ctx, make([]client.Completion, 1))
		ended <- err
	}()
	require.NoError(t, parent.Close(ctx))
	require.ErrorIs(t, <-ended, gpuerr.Revoked)
	<-s.Done()
	require.ErrorIs(t, s.Err(), gpuerr.Revoked)
	require.ErrorIs(t, q.Flush(), gpuerr.Revoked)
}

func TestClosedQueue(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := q.Completions(ctx, make([]client.Completion, 1))
		ended <- err
	}()
	require.NoError(t, q.Close(ctx))
	require.NoError(t, q.Close(ctx))
	require.ErrorIs(t, <-ended, gpuerr.Closed)
	_, err = q.Submit()
	require.ErrorIs(t, err, gpuerr.Closed)
}

func TestLostDevice(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{Mock: mock.Options{Script: mock.Script{Faults: []mock.Fault{{Kind: mock.FaultDeviceGone}}}}})
	ctx := testContext(t)
	s := svc.Open(t)
	b, err := s.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	_, err = q.Submit(&client.Fill{Buffer: b, Bytes: 4096})
	require.NoError(t, err)
	var done [1]client.Completion
	_, err = q.Completions(ctx, done[:])
	if err == nil {
		require.Equal(t, outcome.DeviceLost, done[0].Outcome.Kind)
	} else {
		require.ErrorIs(t, err, gpuerr.DeviceLost)
	}
	_, err = s.CreateBuffer(ctx, 4096, client.Storage)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	<-svc.Device.Lost()
	st, err := svc.Dial(t).NextState(ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, client.Recovering, st.State)
}

func TestPushAndCollectAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	svc := sessiontest.Start(t, sessiontest.Options{Config: func(c *gpu.Config) { c.MaxDeadline = time.Minute }})
	ctx := testContext(t)
	s := svc.Open(t)
	var launch client.Launch
	for range 3 {
		b, err := s.CreateBuffer(ctx, 4096, client.Storage)
		require.NoError(t, err)
		launch.Bindings = append(launch.Bindings, client.Binding{Buffer: b})
	}
	var err error
	launch.Program, err = s.OpenProgram(ctx, "vecadd_f32")
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{Entries: 64})
	require.NoError(t, err)
	done := make([]client.Completion, 8)
	batch := func() {
		for range 8 {
			if _, err := q.PushLaunch(&launch); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Flush(); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < 8; {
			n, err := q.Completions(context.Background(), done)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}
	// The service runs in this process, and does not allocate either once every
	// slot of its queue was in use; nor does going to sleep, on either side. One is
	// for what the runtime may do meanwhile.
	for range 64 {
		batch()
	}
	require.LessOrEqual(t, testing.AllocsPerRun(100, batch), 1.0, "allocations for a batch of 8 commands")
}
