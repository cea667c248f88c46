package gpu

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/ledger"
)

func TestRestrict(t *testing.T) {
	r := newMemRig(t)
	parent := r.open("alice", func(a *Attach) {
		a.MaxDeadline = time.Second
		a.Facet = FacetProgram
		a.Programs = []string{"copy", "spin"}
		a.Limits = limited(ledger.Buffers, 3)
	})
	for name, p := range map[string]Policy{
		"facet":    {Facet: FacetFull},
		"deadline": {MaxDeadline: 2 * time.Second},
		"program":  {Programs: []string{"copy", "trap"}},
	} {
		_, err := parent.Restrict(p)
		require.ErrorIs(t, err, gpuerr.Denied, name)
	}
	child, err := parent.Restrict(Policy{Facet: FacetProgram, MaxDeadline: time.Millisecond, Limits: limited(ledger.Fences, 1), Programs: []string{"copy"}})
	require.NoError(t, err)
	require.Equal(t, time.Millisecond, child.Describe().MaxDeadline)
	require.Equal(t, []string{"copy"}, child.Describe().Programs)
	grandchild, err := child.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
	require.NoError(t, err)

	// Charges count all the way up, and the parent's limit binds.
	buf(t, child, 1)
	buf(t, grandchild, 1)
	hers := buf(t, parent, 1)
	_, err = grandchild.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.EqualValues(t, 3, parent.Budget()[ledger.Buffers].Used)
	require.NoError(t, r.dev.Check())

	// A child's handles are its own.
	require.ErrorIs(t, child.DestroyBuffer(hers), gpuerr.Stale)
	newFence(t, child, 0)
	_, err = grandchild.CreateFence(0)
	require.ErrorIs(t, err, gpuerr.Quota)

	require.Len(t, r.dev.Status("alice").Tenants[0].Sessions, 3)
	require.NoError(t, child.Close())
	require.Error(t, grandchild.Err(), "ends with its parent")
	r.reclaimed()
	require.EqualValues(t, 1, parent.Budget()[ledger.Buffers].Used)
	other, err := parent.Restrict(Policy{Facet: FacetProgram, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	require.NoError(t, parent.Close())
	require.True(t, isClosed(other.Done()))
	require.ErrorIs(t, other.Err(), gpuerr.Closed)
	r.idle(parent)
}

// Each restriction is one more account that a charge walks: the chain is bounded.
func TestRestrictDepth(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	for range maxRestrictions {
		next, err := s.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
		require.NoError(t, err)
		s = next
	}
	_, err := s.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
	require.ErrorIs(t, err, gpuerr.Denied)
}
