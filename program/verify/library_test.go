package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/library"
	"capgpu/program/verify"
)

// TestLibraryIsAdmitted: the kernels of the library are programs, and their
// manifests agree with them.
func TestLibraryIsAdmitted(t *testing.T) {
	for _, name := range library.Names() {
		bundle, ok := library.Bundle(name)
		require.True(t, ok)
		p, err := verify.Admit(bundle, verify.DefaultLimits())
		require.NoError(t, err, name)
		require.Equal(t, name, p.Info.Name)
		for _, w := range p.Info.Warnings {
			t.Logf("%s: %v", name, w)
		}
	}
}
