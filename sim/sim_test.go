package sim

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// long reports that this is `make sim` and not a run of all tests.
func long() bool { return os.Getenv("CAPGPU_SIM_SEEDS") != "" }

// Some seeds, for some seconds; `make sim` runs more of them.
func TestSimulation(t *testing.T) {
	s := sweepSeeds(t, uint64(time.Now().UnixNano()), 40, 3*time.Second, Options{})
	for _, f := range s.failures {
		t.Errorf("reproduce with: make sim SEED=0x%016x\n%v", f.Seed, f.Violations)
	}
	require.NotZero(t, s.ops)
	t.Logf("%d seeds, %d entries, %d classes, %v", s.seeds, s.ops, s.hits.Classes(), s.virtual)
}

// The seeds that once found a bug.
func TestRegressions(t *testing.T) {
	for _, seed := range regressions {
		t.Run(fmt.Sprintf("0x%016x", seed), func(t *testing.T) {
			r := runSeed(t, Options{Seed: seed})
			require.Empty(t, r.Violations)
		})
	}
}

// The same seed gives the same trace, on one processor and on two.
func TestSameSeedSameTrace(t *testing.T) {
	n := 2
	if long() {
		n = 100
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))

	for i := range n {
		o := Options{Seed: mix(uint64(i) + 1000), Trace: true}
		var first Result
		for k, procs := range []int{1, 2, 1, 2} {
			runtime.GOMAXPROCS(procs)
			r := runSeed(t, o)
			if k == 0 {
				first = r
				require.Greater(t, len(r.Lines), 100)
			} else if r.Hash != first.Hash {
				for j, l := range r.Lines {
					if j >= len(first.Lines) || first.Lines[j] != l {
						t.Errorf("seed 0x%016x: line %d is %q, and was %q", o.Seed, j, l, first.Lines[min(j, len(first.Lines)-1)])
						break
					}
				}
			}
		}
	}
}

// Another seed gives another trace.
func TestSeedsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range uint64(4) {
		seen[runSeed(t, Options{Seed: i, Steps: 40}).Hash] = true
	}
	require.Len(t, seen, 4)
}

// Every deliberate mistake is found within a bounded number of seeds.
func TestMutantsAreFound(t *testing.T) {
	const most = 150
	for m := NoMutant + 1; m < NumMutants; m++ {
		t.Run(m.String(), func(t *testing.T) {
			for i := range uint64(most) {
				if r := runSeed(t, Options{Seed: mix(i), Mutant: m}); len(r.Violations) > 0 {
					t.Logf("after %d seeds: %s", i+1, r.Violations[0])
					return
				}
			}
			t.Errorf("not found in %d seeds", most)
		})
	}
}
