package qemu

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHardwareFigures(t *testing.T) {
	const text = "goos: linux\nBenchmarkHardwareInterrupt-2   \t     100\t  6600915 ns/op\t    64550 oneway-ns\t    162413 ours-ns\t     80079 peer-ns\t         2.053 ratio\r\n" +
		"BenchmarkHardwareMap    10  1 ns/op  1.1 ratio\nPASS\n"
	figures, err := hardwareFigures(text, []string{"irq", "map"})
	require.NoError(t, err)
	require.Len(t, figures, 2)
	require.False(t, figures[0].Met)
	require.Equal(t, 2.053, figures[0].Ratio)
	require.EqualValues(t, 162413, figures[0].Ours)
	require.Equal(t, "oneway-ns 64550", figures[0].Others)
	require.True(t, figures[1].Met)
	_, err = hardwareFigures(text, HardwareFigures())
	require.ErrorContains(t, err, "BenchmarkHardwareIoctls")
	_, err = BenchHardware(t.Context(), []string{"speed"}, 1, io.Discard, t.Logf)
	require.ErrorContains(t, err, "speed")
}

// TestHardwareBench: the benchmarks give figures; "make bench-hw" judges them.
func TestHardwareBench(t *testing.T) {
	needVM(t)
	figures, err := BenchHardware(t.Context(), HardwareFigures(), 3, t.Output(), t.Logf)
	require.NoError(t, err)
	require.Len(t, figures, 3)
	for _, f := range figures {
		t.Logf("%+v", f)
	}
	require.Positive(t, figures[0].Ratio)
	require.Positive(t, figures[1].Ratio)
	require.Zero(t, figures[2].Ratio, "this one is no time")
}
