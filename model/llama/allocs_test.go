package llama

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/model"
)

// In steady state neither a pass nor a token allocates, here or in the service,
// which is in this process.
func TestNothingIsAllocated(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}

	f := seeded(1, shape(), true, model.F32)
	m := load(t, open(t, mock.Options{}), f, Options{Batch: 8})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	q, other := newSequence(t, m, 80), newSequence(t, m, 80)
	alone := []Row{{q, 0, 1, true}}
	crowd := []Row{{q, 0, 1, true}, {q, 1, 2, false}, {q, 2, 3, true}, {other, 0, 4, true}, {other, 1, 5, false}}
	vector := make([]float32, f.Config.Dim)
	text := make([]int32, 20)
	for name, c := range map[string]struct {
		passes float64
		run    func() error
	}{
		"one row": {1, func() error { return m.Step(ctx, alone) }},
		"several": {1, func() error { return m.Step(ctx, crowd) }},
		"ahead":   {60, func() error { return m.Greedy(ctx, q, 1, 0, 60, func(int32) bool { return true }) }},
		"vector":  {3, func() error { return m.Embed(ctx, q, text, vector) }},
	} {
		var err error
		run := func() {
			if err == nil {
				err = c.run()
			}
		}

		for range 200 {
			run()
		}

		// The runtime allocates at the first wait of a kind, and the service now
		// and then when it has been busy for long.
		least := math.Inf(1)
		for range 5 {
			least = min(least, testing.AllocsPerRun(200, run))
		}

		require.Less(t, least/c.passes, 0.5, name)
		require.NoError(t, err)
	}
}
