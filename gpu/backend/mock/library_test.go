package mock_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
)

// Every kernel of the library computes what its model does, whatever runs it, and
// the lane engine the same bits with one worker as with four.
func TestLibrary(t *testing.T) {
	type engine struct {
		*mock.Device
		*signalSink
	}
	var engines [3]engine
	for i, o := range []mock.Options{{Workers: 4}, {Workers: 1, LaneOnly: true, Subgroup: 8}, {Workers: 4, LaneOnly: true}} {
		engines[i].Device, engines[i].signalSink = started(t, o)
	}
	for _, name := range library.Names() {
		cases := 8
		if raceEnabled {
			cases = 2
		}
		for _, c := range librarytest.Cases(name, rand.New(rand.NewPCG(7, 7)), cases) {
			var lanes [][]byte // of the first run on the lane engine
			for i, e := range engines {
				p, err := e.Builtin(name)
				require.NoError(t, err)
				got := c.Fresh()
				job := &backend.Job{ID: 1, Op: backend.OpLaunch, Program: p, Grid: c.Natural(), Block: p.Info().Block, Inline: c.Inline}
				for _, b := range got {
					job.Spans = append(job.Spans, backend.Span{Host: b})
				}
				require.NoError(t, e.Submit(job), c.Name)
				<-e.done
				how := e.last.Outcome
				if c.Traps {
					require.Equal(t, outcome.OutOfBounds, how.Trap.Kind, "%s on engine %d: %v", c.Name, i, how)
					require.EqualValues(t, c.Trap, how.Trap.Binding, "%s on engine %d", c.Name, i)
					continue
				}
				require.Equal(t, outcome.Success, how, "%s on engine %d", c.Name, i)
				require.NoError(t, c.Compare(got), "engine %d", i)
				switch {
				case i == 0:
				case lanes == nil:
					lanes = got
				case !p.Info().OrderDependent:
					require.Equal(t, lanes, got, "%s: four workers and one", c.Name)
				}
			}
		}
	}
}

// processorTime is what this process has had of all processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A program that never ends is stopped within milliseconds: of processors, which others
// may have in between.
func TestEndlessProgramStops(t *testing.T) {
	bundle, _ := library.Bundle("spin")
	parsed, err := program.Parse(bundle)
	require.NoError(t, err)
	d, s := started(t, mock.Options{Workers: 2})
	p, err := d.Load(t.Context(), parsed.SPIRV) // not the library's: it really spins
	require.NoError(t, err)
	best := time.Hour
	for _, grid := range []uint32{1, 1, 100, 100, 65535, 65535} {
		job := &backend.Job{ID: 1, Op: backend.OpLaunch, Program: p, Grid: backend.Dim3{X: grid, Y: 1, Z: 1}, Block: p.Info().Block}
		require.NoError(t, d.Submit(job))
		time.Sleep(3 * time.Millisecond)
		began := processorTime(t)
		d.Cancel(1)
		<-s.done
		took := processorTime(t) - began
		require.Equal(t, outcome.Cancelled, s.last.Outcome.Kind)
		require.Less(t, took, time.Second)
		best = min(best, took)
	}
	require.Less(t, best, 5*time.Millisecond)
	t.Logf("stopped in %v at best", best)
}
