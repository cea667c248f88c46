package mock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/gpu/gputest/backendtest"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestConformance(t *testing.T) {
	for name, o := range map[string]mock.Options{
		"one worker":        {Workers: 1},
		"four workers":      {Workers: 4},
		"lane engine":       {Workers: 1, LaneOnly: true},
		"lane engine, four": {Workers: 4, LaneOnly: true, Subgroup: 64},
		"discrete":          {Workers: 1, LocalBytes: 1 << 20},
	} {
		var inapplicable []string
		if o.LocalBytes == 0 {
			inapplicable = []string{"Local/ZeroInAndOut", "Local/Bounded", "Local/LostWithItsGroup", "Local/LostWithAReset"}
		}
		t.Run(name, func(t *testing.T) {
			if raceEnabled && (o.Workers == 1 || !o.LaneOnly) {
				t.Skip("the detector makes it slow; TestLibrary has the bodies share work, too")
			}
			backendtest.Run(t, func(t *testing.T) backendtest.Harness {
				if o.Workers == 4 {
					o.LogEntries, o.LogDigests = 8, !o.LaneOnly
				}
				d, err := mock.New(o)
				require.NoError(t, err)
				return backendtest.Harness{Backend: d}
			}, inapplicable...)
		})
	}
}
