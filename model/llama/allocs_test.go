package llama

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/model"
)

// In steady state neither a pass nor a token allocates, here or in the service, which is
// in this process.
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
	for name, f := range map[string]func() error{
		"one row": func() error { return m.Step(ctx, alone) },
		"several": func() error { return m.Step(ctx, crowd) },
		"ahead":   func() error { return m.Greedy(ctx, q, 1, 0, 60, func(int32) bool { return true }) },
		"vector":  func() error { return m.Embed(ctx, q, text, vector) },
	} {
		var err error
		run := func() {
			if err == nil {
				err = f()
			}
		}
		for range 200 {
			run()
		}
		// The runtime itself allocates when a wait is the first of its kind.
		least := 1.0
		for range 5 {
			least = min(least, testing.AllocsPerRun(200, run))
		}
		require.Zero(t, least, name)
		require.NoError(t, err)
	}
}
