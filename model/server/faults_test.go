package server

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpu/backend/mock/faults"
	"capgpu/gpuerr"
	"capgpu/model/llama"
	"capgpu/model/lm"
	"capgpu/model/sample"
)

// drawn is a long request that runs a step at a time.
func drawn(seed uint64) lm.Request {
	return lm.Request{Prompt: "drawn", MaxTokens: 80, IgnoreEnd: true, LogProbs: 0, Sampling: sample.Params{Temperature: 1, Seed: seed, Seeded: true}}
}

// The device hangs, or fails, in a pass of one of two servers. The server of that
// pass learns of it within the bound. The other's passes are reset with it, but it
// generates the same text as without the fault. Both continue to serve.
func TestDeviceHangs(t *testing.T) {
	const deadline, rounds = time.Second, 2 // a busy host takes its time as well
	for name, kind := range map[string]faults.Kind{"hang": faults.Hang, "error": faults.ErrorCompletion} {
		t.Run(name, func(t *testing.T) {
			var armed atomic.Int64 // the number of the fault that hits the next pass
			var script faults.Script
			for i := range int64(rounds) { // the device checks a job more than once, so only Times makes it once
				script.Faults = append(script.Faults, faults.Fault{Kind: kind, Op: "list", Times: 1, Match: func(*backend.Job) bool { return armed.Load() == i+1 }})
			}

			svc := sessiontest.Start(t, sessiontest.Options{
				Mock: mock.Options{Script: script},
				Config: func(c *gpu.Config) {
					c.DefaultDeadline, c.HangBound, c.Strikes.Limit = deadline, 2*time.Second, 1000
				},
			})

			servers := []*live{startLive(t, svc, optionsFor(svc, llama.Options{Sequences: 2})), startLive(t, svc, optionsFor(svc, llama.Options{Sequences: 2}))}
			want, err := servers[0].ask(t, drawn(1))
			require.NoError(t, err)
			type end struct {
				tokens []lm.Token
				err    error
			}

			broken := 0
			for i := range rounds {
				ends := make(chan end, 2)
				for _, l := range servers {
					s, err := l.Generate(context.Background(), drawn(1))
					require.NoError(t, err)
					_, err = s.Next(context.Background(), make([]lm.Token, 1))
					require.NoError(t, err)
					go func() {
						tokens, err := all(s)
						ends <- end{tokens, err}
					}()
				}

				armed.Store(int64(i) + 1)
				at := time.Now()
				for range servers {
					e := <-ends
					for i := range e.tokens {
						require.Equal(t, want[1+i], e.tokens[i])
					}
					if e.err != nil {
						require.ErrorIs(t, e.err, gpuerr.DeviceLost)
						broken++
						continue
					}
					require.Len(t, e.tokens, len(want)-1)
				}
				require.Less(t, time.Since(at), deadline+30*time.Second)
				for _, l := range servers {
					got, err := l.ask(t, drawn(1))
					if err != nil { // it had not met the fault yet
						require.ErrorIs(t, err, gpuerr.DeviceLost)
						broken++
						got, err = l.ask(t, drawn(1))
					}
					require.NoError(t, err)
					require.Equal(t, want, got)
				}
			}

			require.GreaterOrEqual(t, broken, rounds, "each fault is one server's")
		})
	}
}
