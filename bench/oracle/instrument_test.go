package oracle_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/bench/glsl"
	"capgpu/bench/kernelgen"
	"capgpu/bench/oracle"
	"capgpu/bench/vulkan"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
	"capgpu/program/verify"
)

// instrumented is a program of the library, rewritten for a device.
func instrumented(t *testing.T, name string) (*verify.Program, *instrument.Program) {
	data, _ := library.Bundle(name)
	p, err := verify.Admit(data, verify.DefaultLimits())
	require.NoError(t, err)
	i, err := instrument.Instrument(p)
	require.NoError(t, err)
	return p, i
}

// TestInstrumented: drivers take the instrumented kernels of the library, with the
// right results, and where the engine traps they record the binding and the offset
// that it tells. Which of the lanes that trap is recorded is theirs. The newest driver
// runs them; with CAPGPU_ORACLE_LONG each does.
func TestInstrumented(t *testing.T) {
	drivers, missing := oracle.Drivers()
	if len(drivers) == 0 {
		t.Skipf("SKIPPED: %v", missing)
	}

	cases := int(number(t, "CAPGPU_ORACLE_CASES", 1))
	if os.Getenv("CAPGPU_ORACLE_LONG") == "" {
		drivers = drivers[len(drivers)-1:]
	}
	for _, d := range drivers {
		pipe, err := oracle.OpenLavapipe(d)
		require.NoError(t, err)
		t.Cleanup(pipe.Close)
		e := &oracle.Instrumented{Lavapipe: pipe}
		ran, traps, exact := 0, 0, 0
		for _, name := range library.Names() {
			p, _ := instrumented(t, name)
			data, _ := library.Bundle(name)
			b, err := program.Parse(data)
			require.NoError(t, err)
			l := &oracle.Launch{SPIRV: b.SPIRV, Manifest: b.Manifest, Block: p.Info.Block, BlockFree: p.Info.BlockFree}
			if name == "spin" {
				l.Grid = program.Dim3{X: 2, Y: 1, Z: 1}
				_, r, err := e.Report(l, instrument.NoEntry, 10_000)
				require.NoError(t, err)
				require.Equal(t, instrument.TooLong, r.End)
				continue
			}

			r := rand.New(rand.NewPCG(7, uint64(len(name))))
			for _, c := range append(librarytest.Cases(name, r, librarytest.Edges(name)+cases), librarytest.Traps(name)...) {
				l.Grid, l.Inline, l.Bindings = c.Natural(), c.Inline, c.Bindings
				got, r, err := e.Report(l, instrument.NoEntry, 0)
				require.NoError(t, err, c.Name)
				ran++
				if !c.Traps {
					require.Equal(t, instrument.Report{}, r, c.Name)
					require.NoError(t, c.Compare(got), "on %s", e.Name())
					continue
				}

				traps++
				want := engineTrap(t, p, c)
				require.Equal(t, instrument.Trapped, r.End, c.Name)
				require.Equal(t, want.Kind, r.Trap.Kind, c.Name)
				require.Equal(t, want.Binding, r.Trap.Binding, c.Name)
				if want == r.Trap {
					exact++
				}
				for k := range got { // other kernels check numbers as they find them
					if !strings.HasPrefix(name, "embed_") && !strings.HasSuffix(name, "_cache_f32") {
						require.True(t, bytes.Equal(c.Bindings[k], got[k]), "%s: binding %d was written", c.Name, k)
					}
				}

				// Behind a trap of an earlier entry nothing happens.
				got, r, err = e.Report(l, 0, 0)
				require.NoError(t, err, c.Name)
				require.Equal(t, instrument.Report{}, r, c.Name)
				for k := range got {
					require.True(t, bytes.Equal(c.Bindings[k], got[k]), "%s: binding %d", c.Name, k)
				}
			}
		}
		t.Logf("oracle: %s: %d instrumented launches, %d of them trap, %d with the very trap of the engine", e.Name(), ran, traps, exact)
	}
}

// engineTrap is the trap of the lane engine.
func engineTrap(t *testing.T, p *verify.Program, c librarytest.Case) outcome.Trap {
	k, err := lane.Compile(p, lane.Options{Block: p.Info.Block})
	require.NoError(t, err)
	grid := c.Natural()
	return k.NewWorker().Run(&lane.Launch{Grid: grid, Bindings: c.Fresh(), Inline: c.Inline}, 0, grid.Count(), nil).Trap
}

// TestInstrumentedKernels: random kernels, instrumented, have the results of the lane
// engine. CAPGPU_ORACLE_KERNELS is their number, CAPGPU_ORACLE_FROM the first. The
// newest driver runs them.
func TestInstrumentedKernels(t *testing.T) {
	drivers, missing := oracle.Drivers()
	if len(drivers) == 0 {
		t.Skipf("SKIPPED: %v", missing)
	}
	if err := glsl.Available(); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}

	pipe, err := oracle.OpenLavapipe(drivers[len(drivers)-1])
	require.NoError(t, err)
	t.Cleanup(pipe.Close)
	from, count := number(t, "CAPGPU_ORACLE_FROM", 0), min(number(t, "CAPGPU_ORACLE_KERNELS", 40), 2000)
	end := time.Now().Add(time.Duration(number(t, "CAPGPU_ORACLE_SECONDS", 45)) * time.Second)
	same, left := 0, 0
	for seed := from; seed < from+count && time.Now().Before(end); seed++ {
		o := options(seed)
		if o.Shuffle && pipe.Device().SubgroupOps&shuffles != shuffles {
			continue
		}
		d, err := oracle.Check(kernelgen.Generate(seed, o), []oracle.Run{
			{Variant: oracle.Variants[0], Engine: &oracle.Lane{SubgroupSize: 8}},
			{Variant: oracle.Variants[0], Engine: &oracle.Instrumented{Lavapipe: pipe}},
			{Variant: oracle.Variants[1], Engine: &oracle.Instrumented{Lavapipe: pipe}},
		})
		if err != nil {
			left++ // too large, or glslang makes no valid module of it
			continue
		}
		if d != nil {
			report(t, d)
			return
		}
		same++
	}
	require.Greater(t, same, left)
	t.Logf("oracle: %s, instrumented: %d random kernels as on the lane engine, %d left out", pipe.Device().Driver, same, left)
}

// TestInstrumentedList: in the midst of a recorded list, entries after one that ended
// early do nothing, and those before it are done. The list adds 1 to each of n words,
// five times; the third entry may have fewer rounds than it needs.
func TestInstrumentedList(t *testing.T) {
	drivers, missing := oracle.Drivers()
	if len(drivers) == 0 {
		t.Skipf("SKIPPED: %v", missing)
	}

	const entries, bad, n = 5, 2, 1 << 16
	p, i := instrumented(t, "saxpy_f32")
	x, y := make([]byte, 4*n), make([]byte, 4*n)
	for k := range n {
		binary.LittleEndian.PutUint32(x[4*k:], math.Float32bits(1))
	}
	trap := make([]byte, instrument.BufferBytes(entries))
	instrument.ArmHead(trap)
	lengths := make([][]uint64, entries)
	for e := range entries {
		lengths[e] = []uint64{4 * n, 4 * n}
		require.NoError(t, instrument.ArmSlot(trap[instrument.SlotOff(e):], lengths[e], 0))
	}
	require.NoError(t, instrument.ArmSlot(trap[instrument.SlotOff(bad):], lengths[bad], 1))

	var inlines [][]byte
	for e := range uint32(entries) {
		inline := make([]byte, i.EntryOff+4)
		binary.LittleEndian.PutUint32(inline, math.Float32bits(1))
		binary.LittleEndian.PutUint32(inline[i.EntryOff:], e)
		inlines = append(inlines, inline)
	}

	grid := program.Dim3{X: 1, Y: 1, Z: 1}
	for _, d := range drivers {
		e, err := vulkan.Open(d)
		require.NoError(t, err)
		t.Cleanup(e.Close)
		job := vulkan.Job{SPIRV: i.Module, Grid: [3]uint32{1, 1, 1}, Bindings: [][]byte{x, y, trap}, Inline: inlines[0], More: inlines[1:]}
		for k, size := range []uint32{p.Info.Block.X, p.Info.Block.Y, p.Info.Block.Z} {
			job.Constants = append(job.Constants, vulkan.Constant{ID: uint32(k), Value: uint64(size), Bytes: 4})
		}
		out, err := e.Run(&job)
		require.NoError(t, err)

		first, early := instrument.First(out[2])
		require.True(t, early)
		require.Equal(t, uint32(bad), first)
		for k := range n {
			require.InDelta(t, bad, math.Float32frombits(binary.LittleEndian.Uint32(out[1][4*k:])), 0, "word %d", k)
		}
		for k := range entries {
			r, err := i.Decode(out[2][instrument.SlotOff(k):], grid, lengths[k])
			require.NoError(t, err)
			want := instrument.Whole
			if k == bad {
				want = instrument.TooLong
			}
			require.Equal(t, want, r.End, "entry %d", k)
		}
	}
}
