package client_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// A checked session is a whole one that says so, and so are those below it.
func TestCheckedSession(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	conn := svc.Dial(t)
	s, err := conn.OpenChecked(ctx, 0)
	require.NoError(t, err)
	below, err := s.Restrict(ctx, client.Policy{Facet: client.FacetProgram})
	require.NoError(t, err)
	for _, s := range []*client.Session{s, below} {
		d, err := s.Describe(ctx)
		require.NoError(t, err)
		require.True(t, d.Checked)
	}
	plain, err := conn.Open(ctx, 0)
	require.NoError(t, err)
	d, err := plain.Describe(ctx)
	require.NoError(t, err)
	require.False(t, d.Checked)
	require.NoError(t, below.Close(ctx))
	require.NoError(t, s.Close(ctx))
	require.NoError(t, svc.Device.Reclaimed(ctx))
	require.Len(t, svc.Device.Status("").Tenants[0].Sessions, 1, "nothing is left of it")
}

// A finding of a checked session poisons it, as any trap does.
func TestCheckedSessionFindsRaces(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	module, err := os.ReadFile("../gpu/backend/mock/testdata/race.spv")
	require.NoError(t, err)
	run := func(s *client.Session) outcome.Outcome {
		p, err := s.LoadProgram(ctx, module)
		require.NoError(t, err)
		b, err := s.CreateBuffer(ctx, 4096, client.Storage)
		require.NoError(t, err)
		q, err := s.CreateQueue(ctx, client.QueueOptions{})
		require.NoError(t, err)
		mem, err := b.Map()
		require.NoError(t, err)
		defer b.Unmap()
		for i := range mem {
			mem[i] = byte(i >> 2)
		}
		_, err = q.Submit(&client.Launch{Program: p, Bindings: []client.Binding{{Buffer: b}}, Grid: client.Dim3{X: 16, Y: 1, Z: 1}, Block: p.Info().Block})
		require.NoError(t, err)
		var done [1]client.Completion
		_, err = q.Completions(ctx, done[:])
		require.NoError(t, err)
		return done[0].Outcome
	}
	conn := svc.Dial(t)
	checked, err := conn.OpenChecked(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, outcome.DataRace, run(checked).Trap.Kind)
	_, err = checked.CreateFence(ctx, 0)
	require.ErrorIs(t, err, gpuerr.Poisoned)
	require.ErrorContains(t, err, "dataRace")
	require.NoError(t, checked.Close(ctx))
	plain, err := conn.Open(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, outcome.Success, run(plain))
	require.NoError(t, plain.Close(ctx))
}
