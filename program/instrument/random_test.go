package instrument_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane/lanetest"
	"capgpu/program/verify"
)

// randomCase is the case of a tape, admitted.
func randomCase(t testing.TB, tape *lanetest.Tape) (*lanetest.Case, *verify.Program) {
	c := lanetest.Random(tape)
	bundle, err := program.Encode(c.Module, c.Manifest)
	require.NoError(t, err)
	p, err := verify.Admit(bundle, verify.DefaultLimits())
	require.NoError(t, err)
	c.Launch.Bindings = c.Launch.Bindings[:min(len(c.Launch.Bindings), len(p.Info.Bindings))]
	if p.Info.DynamicElementBytes == 0 {
		c.Options.SharedBytes = 0
	}
	return c, p
}

// TestRandom compares random programs with themselves, instrumented; every other
// one has lost some of its guards.
// INSTRUMENT_RANDOM sets how many, INSTRUMENT_SEED the first; each tenth also goes
// through spirv-val where it is installed.
func TestRandom(t *testing.T) {
	count, seed := 150, uint64(1)
	if s := os.Getenv("INSTRUMENT_RANDOM"); s != "" {
		count, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("INSTRUMENT_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}

	_, missing := exec.LookPath("spirv-val")
	var trapped, same, later, stuck, dirty, long, large, refused, chosen, bad int
	for n := range count {
		c, p := randomCase(t, lanetest.NewTape(seed))
		if p.Chosen != nil {
			_, err := instrument.Instrument(p)
			require.ErrorContains(t, err, "SPV-2910")
			chosen++
			seed++
			continue
		}
		if seed%2 == 1 {
			q := wilder(rand.New(rand.NewPCG(seed, 1)), c, p)
			if q == nil {
				refused++
				seed++
				continue
			}
			p = q
		}

		v, err := difference(t, p, c.Options, c.Launch, 1<<13)
		switch {
		case errors.Is(err, errEngine):
			large++
		case err != nil:
			t.Errorf("seed %d: %v", seed, err)
			if bad++; bad == 10 {
				return
			}
		case v.dirty:
			dirty++
		case v.long:
			long++
		case v.trapped:
			trapped++
			same += number(v.same)
			later += number(v.later)
			stuck += number(v.stuck)
		}

		if n%10 == 0 && missing == nil {
			i, err := instrument.Instrument(p)
			require.NoError(t, err)
			require.Empty(t, spirvVal(t, i.Module), "seed %d", seed)
		}
		seed++
	}

	t.Logf("%d programs: %d trapped, %d of them with the engine's trap, %d with a later lane's, %d then stuck at barriers; %d read unwritten memory, %d do not end, %d are too large for the engine, %d that the verifier refuses, %d with pointers that are chosen when they run",
		count, trapped, same, later, stuck, dirty, long, large, refused, chosen)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
