package sim

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sweep is the result of many seeds.
type sweep struct {
	seeds    int
	virtual  time.Duration
	wall     time.Duration
	hits     Hits
	ops      int
	failures []Result
}

// mostReal is far more than a seed takes. On virtual time a goroutine that goes round and
// round stops the clock, and the seed would not end.
const mostReal = 3 * time.Minute

// runSeed is Run in a bubble; anything that it leaves behind is a violation, too.
func runSeed(t *testing.T, o Options) (r Result) {
	stuck := time.AfterFunc(mostReal, func() {
		panic(fmt.Sprintf("seed 0x%016x does not end: time stands still, because something never rests; reproduce with: make sim SEED=0x%016x", o.Seed, o.Seed))
	})
	defer stuck.Stop()
	defer func() {
		if p := recover(); p != nil {
			r.Seed = o.Seed
			r.Violations = append(r.Violations, fmt.Sprintf("panic: %v", p))
		}
	}()

	synctest.Test(t, func(*testing.T) {
		defer func() { // nothing survives a panic in a bubble, so the seed has to be printed here
			if p := recover(); p != nil {
				fmt.Printf("PANIC in seed 0x%016x: reproduce with: make sim SEED=0x%016x\n", o.Seed, o.Seed)
				panic(p)
			}
		}()
		r = Run(o, synctest.Wait)
	})

	return r
}

// sweepSeeds runs seeds side by side, until there are n or the time is up.
func sweepSeeds(t *testing.T, first uint64, n int, most time.Duration, o Options) (s sweep) {
	var mu sync.Mutex
	began := time.Now()
	next := 0
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					i := next
					next++
					mu.Unlock()
					if i >= n || most > 0 && time.Since(began) > most {
						return
					}

					x := o
					x.Seed = mix(first + uint64(i))
					r := runSeed(t, x)
					mu.Lock()
					s.seeds++
					s.virtual += r.Virtual
					s.hits.add(&r.Hits)
					s.ops += r.Ops
					if len(r.Violations) > 0 {
						s.failures = append(s.failures, r)
					}

					mu.Unlock()
				}
			})
		}
	})

	s.wall = time.Since(began)
	sort.Slice(s.failures, func(i, j int) bool { return s.failures[i].Seed < s.failures[j].Seed })
	return s
}

// mix spreads small numbers over the 64 bits (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (s *sweep) print() {
	for _, f := range s.failures {
		fmt.Printf("FAILED seed 0x%016x: reproduce with: make sim SEED=0x%016x\n", f.Seed, f.Seed)
		for _, v := range f.Violations {
			fmt.Printf("    %s\n", v)
		}
	}
	for c := Class(1); c < numClasses; c++ {
		fmt.Printf("class %2d  %6d  %v\n", c, s.hits[c], c)
	}
	fmt.Printf("seeds          %d (%d entries), %d failed\n", s.seeds, s.ops, len(s.failures))
	fmt.Printf("seeds/minute   %.0f\n", float64(s.seeds)/s.wall.Minutes())
	fmt.Printf("classes        %d of 24\n", s.hits.Classes())
	fmt.Printf("virtual        %v in %v: %.0f virtual seconds a second\n", s.virtual.Round(time.Second), s.wall.Round(time.Millisecond), s.virtual.Seconds()/s.wall.Seconds())
}

// TestSweep is `make sim`: CAPGPU_SIM_SEEDS seeds, or the one of CAPGPU_SIM_SEED with its
// trace.
func TestSweep(t *testing.T) {
	if text := os.Getenv("CAPGPU_SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		r := runSeed(t, Options{Seed: seed, Trace: true})
		for _, l := range r.Lines {
			fmt.Println(l)
		}
		fmt.Printf("trace          %016x\n", r.Hash)
		for _, v := range r.Violations {
			t.Error(v)
		}
		return
	}

	text := os.Getenv("CAPGPU_SIM_SEEDS")
	if text == "" {
		t.Skip("CAPGPU_SIM_SEEDS says how many seeds; TestSimulation runs some")
	}

	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}

	first, _ := strconv.ParseUint(os.Getenv("CAPGPU_SIM_FIRST"), 0, 64)
	s := sweepSeeds(t, first, n, 0, Options{})
	s.print()
	if len(s.failures) > 0 {
		t.Errorf("%d seeds failed", len(s.failures))
	}
}
