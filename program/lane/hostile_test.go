package lane_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/proctest"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// TestHostileModules breaks real modules at random and runs every mutant that is
// still admitted, on memory with nothing mapped before and behind. There must be no
// panic, no access outside the bindings, no write to read-only bindings, and an end
// soon after the deadline. CAPGPU_HOSTILE is the number of mutants, for a long run,
// and CAPGPU_HOSTILE_FROM the first of their seeds.
func TestHostileModules(t *testing.T) {
	total, err := strconv.ParseInt(os.Getenv("CAPGPU_HOSTILE"), 10, 64)
	if err != nil {
		total = 20_000
		if raceEnabled {
			total = 2_000 // the rest is run without it
		}
	}

	from, _ := strconv.ParseUint(os.Getenv("CAPGPU_HOSTILE_FROM"), 10, 64)
	seeds := hostileSeeds(t)
	var left atomic.Int64
	left.Store(total)
	var sum hostileCounts
	var mu sync.Mutex
	var wg sync.WaitGroup
	begun := time.Now()
	for range 2 {
		wg.Go(func() {
			h := newHostile(t, seeds)
			defer h.close()
			for n := left.Add(-1); n >= 0 && !t.Failed(); n = left.Add(-1) {
				h.one(from + uint64(n))
			}
			mu.Lock()
			defer mu.Unlock()
			sum.add(&h.counts)
		})
	}

	wg.Wait()
	t.Logf("%d mutants in %v: %d admitted, %d compiled, %d ran to the end, %d trapped, %d stopped; slowest admission %v, compilation %v, stop %v",
		total, time.Since(begun).Round(time.Millisecond), sum.admitted, sum.compiled, sum.ended, sum.trapped, sum.stopped, sum.admit, sum.compile, sum.stop)

	require.NotZero(t, sum.admitted, "no mutant is admitted: nothing was tested")
	require.NotZero(t, sum.ended)
}

// hostileSeeds are the modules that are broken.
func hostileSeeds(t *testing.T) [][]byte {
	var seeds [][]byte
	for _, name := range library.Names() {
		data, ok := library.Bundle(name)
		require.True(t, ok)
		b, err := program.Parse(data)
		require.NoError(t, err)
		seeds = append(seeds, b.SPIRV)
	}

	for _, dir := range []string{"../spirv/testdata", "../verify/testdata"} {
		paths, err := filepath.Glob(dir + "/*.spv")
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		for _, path := range paths {
			module, err := os.ReadFile(path)
			require.NoError(t, err)
			seeds = append(seeds, module)
		}
	}

	return seeds
}

type hostileCounts struct {
	admitted, compiled, ended, trapped, stopped int
	admit, compile, stop                        time.Duration // the longest
}

func (c *hostileCounts) add(o *hostileCounts) {
	c.admitted += o.admitted
	c.compiled += o.compiled
	c.ended += o.ended
	c.trapped += o.trapped
	c.stopped += o.stopped
	c.admit, c.compile, c.stop = max(c.admit, o.admit), max(c.compile, o.compile), max(c.stop, o.stop)
}

// patience is the processor time that a mutant may take longer than promised before
// that is a failure.
const patience = 5 * time.Second

// hostile is one goroutine's part of the test.
type hostile struct {
	t      *testing.T
	seeds  [][]byte
	arena  [program.MaxBindings][]byte // a guard page, bindingPages, a guard page
	timer  *time.Timer
	stop   atomic.Uint32
	counts hostileCounts
}

const (
	pageBytes    = 4096
	bindingBytes = 2 * pageBytes
)

func newHostile(t *testing.T, seeds [][]byte) *hostile {
	h := &hostile{t: t, seeds: seeds}
	for i := range h.arena {
		mem, err := unix.Mmap(-1, 0, bindingBytes+2*pageBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
		require.NoError(t, err)
		h.arena[i] = mem
	}
	h.timer = time.AfterFunc(time.Hour, func() { h.stop.Store(1) })
	return h
}

func (h *hostile) close() {
	h.timer.Stop()
	for _, mem := range h.arena {
		require.NoError(h.t, unix.Munmap(mem))
	}
}

// one makes, admits and runs the mutant of a seed.
func (h *hostile) one(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	module := spirvtest.Mutate(rng, h.seeds[rng.IntN(len(h.seeds))])
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			h.t.Errorf("mutant %d: panic: %v\n%s", seed, p, debug.Stack())
		}
	}()

	var p *verify.Program
	var err error
	took := proctest.CPU(func() { p, err = verify.Admit(module, verify.DefaultLimits()) })
	h.within(seed, "admission", &h.counts.admit, took, 0)
	var refusal *program.Refusal
	if err != nil {
		if !errors.As(err, &refusal) {
			h.t.Errorf("mutant %d: %v is no refusal", seed, err)
		}
		return
	}

	h.counts.admitted++
	o := lane.Options{SubgroupSize: 8 << rng.IntN(4), Check: rng.IntN(8) == 0}
	if d := p.Info.DynamicElementBytes; d > 0 {
		o.SharedBytes = d * rng.Uint32N(16)
	}

	var k *lane.Kernel
	took = proctest.CPU(func() { k, err = lane.Compile(p, o) })
	h.within(seed, "compilation", &h.counts.compile, took, 0)
	if err != nil {
		// SPV-2903 is a bug of the compiler, found in time.
		if !errors.As(err, &refusal) || refusal.Code == "SPV-2903" {
			h.t.Errorf("mutant %d: %v is no refusal", seed, err)
		}
		return
	}

	h.counts.compiled++
	h.run(seed, rng, p, k)
}

func (h *hostile) run(seed uint64, rng *rand.Rand, p *verify.Program, k *lane.Kernel) {
	l := &lane.Launch{Grid: program.Dim3{X: 1 + rng.Uint32N(3), Y: 1 + rng.Uint32N(2), Z: 1}, Inline: make([]byte, p.Info.InlineBytes)}
	for i := range l.Inline {
		if i%4 == 0 || rng.IntN(8) == 0 { // mostly small numbers
			l.Inline[i] = byte(rng.Uint32())
		}
	}

	for i, b := range p.Info.Bindings {
		mem := h.arena[i][pageBytes : pageBytes+bindingBytes]
		require.NoError(h.t, unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE))
		for j := 0; j < len(mem); j += 8 {
			binary.NativeEndian.PutUint64(mem[j:], rng.Uint64())
		}

		if b.Access == program.Read {
			require.NoError(h.t, unix.Mprotect(mem, unix.PROT_READ))
		}

		// At the front or at the back guard page.
		n := (1 + rng.IntN(bindingBytes/16)) * 16
		if rng.IntN(2) == 0 {
			mem = mem[:n:n]
		} else {
			mem = mem[len(mem)-n:]
		}

		l.Bindings = append(l.Bindings, mem)
	}

	const deadline = time.Millisecond
	h.stop.Store(0)
	h.timer.Reset(deadline)
	var r lane.Result
	took := proctest.CPU(func() { r = k.NewWorker().Run(l, 0, uint64(l.Grid.X)*uint64(l.Grid.Y), &h.stop) })
	h.timer.Stop()
	h.within(seed, "stop", &h.counts.stop, took, deadline)
	switch {
	case r.Trap.Kind != outcome.NoTrap:
		h.counts.trapped++
		h.checkTrap(seed, p, l, r.Trap)
	case r.Stopped:
		h.counts.stopped++
	default:
		h.counts.ended++
	}
}

// checkTrap: a trap names what exists.
func (h *hostile) checkTrap(seed uint64, p *verify.Program, l *lane.Launch, trap outcome.Trap) {
	lanes := p.Info.Block.X * p.Info.Block.Y * p.Info.Block.Z
	if trap.Workgroup >= l.Grid.X*l.Grid.Y || trap.Lane >= lanes || trap.Binding != 0xffff && int(trap.Binding) >= len(l.Bindings) {
		h.t.Errorf("mutant %d: a trap nowhere: %+v", seed, trap)
	}
}

func (h *hostile) within(seed uint64, what string, longest *time.Duration, took, promised time.Duration) {
	took -= promised
	*longest = max(*longest, took)
	if took > patience {
		h.t.Errorf("mutant %d: %s took %v", seed, what, took)
	}
}
