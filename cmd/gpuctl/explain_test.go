package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
)

// TestExplainOwnVariable: a trap in a local or shared variable blames no input.
func TestExplainOwnVariable(t *testing.T) {
	text := explainTrap(outcome.OutOfBounds, &trapInfo{Binding: outcome.NoBinding, Offset: 48, Lane: 9}, &job{})
	require.Contains(t, text, "at byte 48 of the variable, in workgroup 0, lane 9")
	require.NotContains(t, text, "65535")
	require.NotContains(t, text, "inputs")
	text = explainTrap(outcome.OutOfBounds, &trapInfo{Binding: 1, Name: "x", Offset: 48}, &job{})
	require.Contains(t, text, "binding 1 (x)")
}
