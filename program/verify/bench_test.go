package verify_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/verify"
)

// BenchmarkAdmit admits a module of 5 KB.
func BenchmarkAdmit(b *testing.B) {
	data, err := os.ReadFile("testdata/control.spv")
	require.NoError(b, err)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verify.Admit(data, verify.DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}
