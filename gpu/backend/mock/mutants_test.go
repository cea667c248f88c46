package mock_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/library"
)

// TestMutants loads modules that chance has changed and runs those that are
// admitted: none touches memory outside its bindings, none outlives its cancel, and
// none meets a bug of the engine. CAPGPU_MUTANTS says how many; the seed is told.
func TestMutants(t *testing.T) {
	count := 1500
	if raceEnabled {
		count = 200
	}
	seed := uint64(1)
	if n, err := strconv.Atoi(os.Getenv("CAPGPU_MUTANTS")); err == nil {
		count, seed = n, uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	d, s := started(t, mock.Options{Workers: 2, LaneOnly: true})
	var modules [][]byte
	for _, name := range library.Names() {
		bundle, _ := library.Bundle(name)
		parsed, err := program.Parse(bundle)
		require.NoError(t, err)
		modules = append(modules, parsed.SPIRV)
	}
	// Bindings lie between guards of the same memory.
	const guard, size = 4096, 8192
	mem := make([]byte, program.MaxBindings*(guard+size)+guard)
	fresh := bytes.Repeat([]byte{0xA5}, guard)
	admitted, ended := 0, map[string]int{}
	for i := range count {
		module := mutate(r, modules[r.IntN(len(modules))])
		p, err := d.Load(t.Context(), module)
		if err != nil {
			require.ErrorIs(t, err, gpuerr.Program, "mutant %d", i)
			continue
		}
		admitted++
		info := p.Info()
		job := &backend.Job{
			ID: backend.JobID(i + 1), Op: backend.OpLaunch, Program: p, Check: r.IntN(8) == 0,
			Grid:  backend.Dim3{X: 1 + r.Uint32N(3), Y: 1, Z: 1},
			Block: info.Block, Inline: make([]byte, info.InlineBytes),
		}
		for b := range job.Inline {
			if r.IntN(4) == 0 {
				job.Inline[b] = byte(r.Uint32N(40))
			}
		}
		for b := range program.MaxBindings + 1 {
			copy(mem[b*(guard+size):], fresh)
		}
		for b := range info.Bindings {
			at := b*(guard+size) + guard
			job.Spans = append(job.Spans, backend.Span{Host: mem[at : at+size : at+size]})
		}
		require.NoError(t, d.Submit(job), "mutant %d", i)
		patience := time.NewTimer(20 * time.Millisecond)
		select {
		case <-s.done:
		case <-patience.C:
			d.Cancel(job.ID)
			began := time.Now()
			<-s.done
			require.Less(t, time.Since(began), 2*time.Second, "mutant %d does not stop", i)
		}
		patience.Stop()
		how := s.last.Outcome
		require.Contains(t, []outcome.Kind{outcome.OK, outcome.Cancelled, outcome.Failed}, how.Kind)
		if how.Kind == outcome.Failed {
			require.Contains(t, []outcome.Cause{outcome.TrapCause, outcome.LaunchLimit}, how.Cause, "mutant %d met a bug", i)
		}
		ended[how.Kind.String()]++
		for b := range program.MaxBindings + 1 {
			require.True(t, bytes.Equal(fresh, mem[b*(guard+size):][:guard]), "mutant %d wrote outside its bindings", i)
		}
	}
	t.Logf("%d of %d admitted; they ended %v", admitted, count, ended)
	require.NotZero(t, admitted)
}

// mutate changes one or a few words of a module.
func mutate(r *rand.Rand, module []byte) []byte {
	out := bytes.Clone(module)
	words := len(out) / 4
	for range 1 + r.IntN(3) {
		at := 4 * (5 + r.IntN(words-5))
		v := binary.LittleEndian.Uint32(out[at:])
		switch r.IntN(6) {
		case 0:
			v ^= 1 << r.IntN(32)
		case 1:
			v += uint32(r.IntN(9)) - 4
		case 2:
			v = r.Uint32N(uint32(words))
		case 3:
			v = [...]uint32{0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff}[r.IntN(6)]
		case 4:
			v = binary.LittleEndian.Uint32(out[4*(5+r.IntN(words-5)):])
		default: // two words change places
			other := 4 * (5 + r.IntN(words-5))
			w := binary.LittleEndian.Uint32(out[other:])
			binary.LittleEndian.PutUint32(out[other:], v)
			v = w
		}
		binary.LittleEndian.PutUint32(out[at:], v)
	}
	return out
}
