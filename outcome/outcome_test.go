package outcome

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/schema"
)

// TestNumbersAreTheSchemas: outcomes travel untranslated, so the two must agree.
func TestNumbersAreTheSchemas(t *testing.T) {
	for k := Pending; k < numKinds; k++ {
		require.Equal(t, schema.OutcomeKind(k).String(), k.String())
	}
	require.Empty(t, schema.OutcomeKind(numKinds).String(), "the schema has a kind more")
	for c := NoCause; c < numCauses; c++ {
		require.Equal(t, schema.OutcomeCause(c).String(), c.String())
	}
	require.Empty(t, schema.OutcomeCause(numCauses).String(), "the schema has a cause more")
	for k := NoTrap; k < numTrapKinds; k++ {
		require.Equal(t, schema.TrapKind(k).String(), k.String())
	}
	require.Empty(t, schema.TrapKind(numTrapKinds).String(), "the schema has a trap kind more")
}

func TestWorse(t *testing.T) {
	failed := Outcome{Kind: Failed, Cause: TrapCause, Trap: Trap{Kind: OutOfBounds, Binding: 1}}
	other := Outcome{Kind: Failed, Cause: DeviceError}
	require.Equal(t, failed, Worse(Success, failed))
	require.Equal(t, failed, Worse(failed, Success))
	require.Equal(t, failed, Worse(failed, other), "the first of equals stands")
	require.Equal(t, failed, Worse(Outcome{Kind: Cancelled}, failed), "the guilty wins over what it caused")
	require.Equal(t, Success, Worse(Outcome{}, Success))
	for k := OK + 1; k < numKinds; k++ {
		require.NotEqual(t, Success, Worse(Success, Outcome{Kind: k}), "%v must not be hidden by ok", k)
	}
}

func TestValidAndText(t *testing.T) {
	require.True(t, Success.Valid())
	require.False(t, Outcome{Kind: numKinds}.Valid())
	require.False(t, Outcome{Cause: numCauses}.Valid())
	require.False(t, Outcome{Trap: Trap{Kind: numTrapKinds}}.Valid())
	require.Equal(t, "failed: trap outOfBounds binding=2 offset=4096 workgroup=1 lane=0",
		Outcome{Kind: Failed, Cause: TrapCause, Trap: Trap{Kind: OutOfBounds, Binding: 2, Offset: 4096, Workgroup: 1}}.String())
	require.Equal(t, "timedOut: hang", Outcome{Kind: TimedOut, Cause: Hang}.String())
	require.Equal(t, "ok", Success.String())
	require.Equal(t, "unknown(99)", Kind(99).String())
}
