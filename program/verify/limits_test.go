package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/verify"
)

// TestLimits: a host that lowers a limit admits less, and the refusal names the
// limit.
func TestLimits(t *testing.T) {
	module := modules(t)["maths"]
	for code, lower := range map[verify.Code]func(l *verify.Limits){
		verify.CodeBlock:      func(l *verify.Limits) { l.BlockThreads = 0 },
		verify.CodeSharedSize: func(l *verify.Limits) { l.SharedBytes = 15 },
		verify.CodeStack:      func(l *verify.Limits) { l.StackBytes = 10 },
		verify.CodeBinding:    func(l *verify.Limits) { l.Bindings = 1 },
		verify.CodeDeep:       func(l *verify.Limits) { l.TypeDepth = 1 },
		verify.CodeLarge:      func(l *verify.Limits) { l.ValueBytes = 15 },
		verify.CodeExpansion:  func(l *verify.Limits) { l.Instructions = 100 },
	} {
		lim := verify.DefaultLimits()
		_, err := verify.Admit(module, lim)
		require.NoError(t, err)
		lower(&lim)
		_, err = verify.Admit(module, lim)
		var r *program.Refusal
		require.ErrorAs(t, err, &r, code)
		require.Equal(t, code, r.Code, "%v", r)
	}

	_, err := verify.Admit(module, verify.Limits{})
	require.Error(t, err)
	lim := verify.DefaultLimits()
	lim.Bindings, lim.Warnings = 1<<20, 0
	_, err = verify.Admit(module, lim)
	require.NoError(t, err, "what is beyond the profile stays beyond it, and nothing else")
}
