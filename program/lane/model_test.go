package lane_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/lane/lanetest"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// modelSteps bounds the model's steps; LANE_STEPS sets another number.
var modelSteps = 3 << 16

func init() {
	if n, err := strconv.Atoi(os.Getenv("LANE_STEPS")); err == nil {
		modelSteps = n
	}
}

// difference runs a launch on the engine and on the model, and returns how they
// differ: in the bindings, bit for bit except that all NaNs are equal, or in the
// trap. After a trap it does not compare the bindings.
func difference(p *verify.Program, o lane.Options, l *lane.Launch) error {
	k, err := lane.Compile(p, o)
	if err != nil {
		return fmt.Errorf("Compile: %w", err)
	}

	clone := func() *lane.Launch {
		c := *l
		c.Bindings = make([][]byte, len(l.Bindings))
		for i := range c.Bindings {
			c.Bindings[i] = slices.Clone(l.Bindings[i])
		}
		return &c
	}

	got, want := clone(), clone()
	traps, err := lanetest.Traps(p, o, want, modelSteps)
	if err != nil {
		return fmt.Errorf("the model: %w", err)
	}

	if checked(l) {
		o.Check = true
		if k, err = lane.Compile(p, o); err != nil {
			return fmt.Errorf("Compile, checked: %w", err)
		}
	}

	groups := uint64(l.Grid.X) * uint64(l.Grid.Y) * uint64(l.Grid.Z)
	half := groups / 2
	var r lane.Result
	for _, part := range [][2]uint64{{0, half}, {half, groups}} {
		w := k.NewWorker()
		r = w.Run(got, part[0], part[1], nil)
		returned := false // lanes that did not reach a barrier
		for _, f := range w.Findings() {
			if f.Kind == outcome.DataRace {
				return fmt.Errorf("a finding: %v", f)
			}
			returned = returned || f.Kind == outcome.DivergentBarrier && strings.Contains(f.Message, "returned")
		}

		if o.Check && (r.Trap.Kind == outcome.Uninitialized || r.Trap.Kind == outcome.DivergentBarrier && returned) {
			r.Trap = outcome.Trap{} // a finding only, after which the program went on
			if len(traps) > 0 {
				return nil
			}
		}

		if r.Trap.Kind != outcome.NoTrap {
			break
		}
	}

	if r.Trap.Kind != outcome.NoTrap || len(traps) > 0 {
		if !slices.Contains(traps, r.Trap) {
			return fmt.Errorf("the engine traps with {%v}, the model with one of %v", r.Trap, traps)
		}
		return nil
	}

	for i := range got.Bindings {
		if err := sameElements(p.Info.Bindings[i].Type, got.Bindings[i], want.Bindings[i]); err != nil {
			return fmt.Errorf("binding %d: %w", i, err)
		}
	}

	return nil
}

// checked reports whether to run a launch with the checker: some are.
func checked(l *lane.Launch) bool { return len(l.Inline) > 0 && l.Inline[len(l.Inline)-1] == 0 }

func sameElements(t program.Type, got, want []byte) error {
	size := 4
	switch t {
	case "f16":
		size = 2
	case "f64":
		size = 8
	}
	for at := 0; at < len(want); at += size {
		g, w := got[at:min(at+size, len(got))], want[at:min(at+size, len(want))]
		if slices.Equal(g, w) || isNaN(t, g) && isNaN(t, w) {
			continue
		}
		return fmt.Errorf("byte %d is %x, in the model %x", at, g, w)
	}
	return nil
}

func isNaN(t program.Type, b []byte) bool {
	switch {
	case t == "f16" && len(b) == 2:
		return binary.LittleEndian.Uint16(b)&0x7FFF > 0x7C00
	case t == "f32" && len(b) == 4:
		return math.IsNaN(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	case t == "f64" && len(b) == 8:
		return math.IsNaN(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return false
}

// TestModelOfLibrary compares the engine with the model on the library's kernels.
func TestModelOfLibrary(t *testing.T) {
	for _, name := range library.Names() {
		if name == "spin" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			data, _ := library.Bundle(name)
			p, err := verify.Admit(data, verify.DefaultLimits())
			require.NoError(t, err)
			rng := rand.New(rand.NewPCG(3, uint64(len(name))))
			cases := librarytest.Cases(name, rng, 6)
			cases = append(cases, librarytest.Traps(name)...)
			n, skipped := 0, 0
			for _, c := range cases {
				if size(c.Bindings) > 2<<10 && !c.Traps {
					continue
				}

				n++
				o := lane.Options{SubgroupSize: 8 << rng.IntN(4), Block: p.Info.Block}
				if p.Info.BlockFree {
					o.Block = blocks[rng.IntN(len(blocks))]
				}

				grid := c.Natural()
				l := &lane.Launch{Grid: grid, Bindings: c.Fresh(), Inline: c.Inline}
				err := difference(p, o, l)
				if errors.Is(err, lanetest.ErrTooLong) {
					skipped++
					continue
				}

				require.NoError(t, err, "%s, %+v", c.Name, o)
			}

			require.Less(t, skipped, n, "nothing was compared")
			t.Logf("%d cases, of which %d are too long", n, skipped)
		})
	}
}

func size(bindings [][]byte) (n int) {
	for _, b := range bindings {
		n += len(b)
	}
	return n
}

// blocks are workgroups, of one, two and three dimensions.
var blocks = []program.Dim3{{X: 64, Y: 1, Z: 1}, {X: 1, Y: 1, Z: 1}, {X: 8, Y: 4, Z: 2}, {X: 33, Y: 1, Z: 1}, {X: 5, Y: 3, Z: 1},
	{X: 16, Y: 2, Z: 1}, {X: 7, Y: 1, Z: 3}, {X: 1, Y: 20, Z: 1}}

// TestModelOfShaders compares the engine with the model on compilers' modules.
func TestModelOfShaders(t *testing.T) {
	var files []string
	for _, dir := range []string{"../spirv/testdata", "../verify/testdata"} {
		more, err := filepath.Glob(filepath.Join(dir, "*.spv"))
		require.NoError(t, err)
		files = append(files, more...)
	}

	require.NotEmpty(t, files)
	for _, file := range files {
		if slices.Contains(racy, filepath.Base(file)) {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			p, err := verify.Admit(data, verify.DefaultLimits())
			if err != nil {
				t.Skipf("not in the profile: %v", err)
			}

			rng := rand.New(rand.NewPCG(5, uint64(len(data))))
			for range 4 {
				o := lane.Options{SubgroupSize: 8 << rng.IntN(4), Block: p.Info.Block}
				if p.BlockIDs[0] != 0 {
					o.Block.X = 1 + rng.Uint32N(70)
				}
				if file == "../spirv/testdata/subgroup.spv" {
					o.SubgroupSize = 32 // elected lanes change the same words
				}
				if n := p.Info.DynamicElementBytes; n > 0 {
					o.SharedBytes = n * uint32(o.Block.X*o.Block.Y*o.Block.Z)
				}

				l := &lane.Launch{Grid: program.Dim3{X: 1 + rng.Uint32N(3), Y: 1 + rng.Uint32N(2), Z: 1}}
				for _, b := range p.Info.Bindings {
					l.Bindings = append(l.Bindings, contents(rng, b.Type, 256+rng.IntN(8192)))
				}

				for range p.Info.InlineBytes {
					l.Inline = append(l.Inline, byte(rng.IntN(3)))
				}

				err := difference(p, o, l)
				if errors.Is(err, lanetest.ErrTooLong) {
					continue // there are endless loops among them
				}

				require.NoError(t, err, "%+v", o)
			}
		})
	}
}

// racy are shaders with results that depend on the order of lanes.
var racy = []string{"wide.spv", "wide_opt.spv", "model.spv"}

// contents are elements of a type, ordinary and extraordinary ones.
func contents(rng *rand.Rand, t program.Type, n int) []byte {
	b := make([]byte, 0, n)
	for len(b) < n {
		switch t {
		case "f32":
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(oddFloat(rng))))
		case "f64":
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(oddFloat(rng)))
		case "u64", "i64":
			b = binary.LittleEndian.AppendUint64(b, oddInt(rng))
		case "u8", "i8", "u16", "i16", "f16":
			b = append(b, byte(rng.Uint32()))
		default:
			b = binary.LittleEndian.AppendUint32(b, uint32(oddInt(rng)))
		}
	}

	return b[:n]
}

func oddFloat(rng *rand.Rand) float64 {
	switch rng.IntN(8) {
	case 0:
		odd := []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32, 0x1p-140, -0x1p-126, 0x1p31, -0x1p31, 0x1p32, 0x1p63, 0.5, 2.5}
		return odd[rng.IntN(len(odd))]
	case 1:
		return float64(math.Float32frombits(rng.Uint32()))
	case 2, 3:
		return float64(rng.IntN(200) - 100)
	}
	return rng.NormFloat64() * 10
}

func oddInt(rng *rand.Rand) uint64 {
	switch rng.IntN(8) {
	case 0:
		odd := []uint64{0, 1, math.MaxUint64, 1 << 31, 1<<31 - 1, 1 << 63, 1<<63 - 1, math.MaxUint32, 1 << 32}
		return odd[rng.IntN(len(odd))]
	case 1, 2:
		return rng.Uint64()
	case 3:
		return -rng.Uint64N(100)
	}
	return rng.Uint64N(40)
}

// check runs the random case of a tape.
func check(t *lanetest.Tape) (*lanetest.Case, error) {
	c := lanetest.Random(t)
	bundle, err := program.Encode(c.Module, c.Manifest)
	if err != nil {
		return c, fmt.Errorf("Encode: %w", err)
	}
	p, err := verify.Admit(bundle, verify.DefaultLimits())
	if err != nil {
		return c, fmt.Errorf("Admit: %w", err)
	}
	l := *c.Launch
	l.Bindings = l.Bindings[:min(len(l.Bindings), len(p.Info.Bindings))]
	if p.Info.DynamicElementBytes == 0 {
		c.Options.SharedBytes = 0
	}
	return c, difference(p, c.Options, &l)
}

// TestModelOfRandom compares the engine with the model on random programs.
// LANE_RANDOM sets how many, LANE_SEED the first.
func TestModelOfRandom(t *testing.T) {
	count, seed := 200, uint64(1)
	if s := os.Getenv("LANE_RANDOM"); s != "" {
		count, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("LANE_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}

	long, bad := 0, 0
	for range count {
		tape := lanetest.NewTape(seed)
		_, err := check(tape)
		switch {
		case errors.Is(err, lanetest.ErrTooLong):
			long++
		case err != nil:
			report(t, seed, tape, err)
			if bad++; bad == 3 {
				return
			}
		}
		seed++
	}

	require.Less(t, long, max(count/4, 1), "too many programs are too long for the model")
}

// shrinkFor bounds the search for a smaller program; LANE_SHRINK sets another time.
var shrinkFor = 10 * time.Second

func init() {
	if d, err := time.ParseDuration(os.Getenv("LANE_SHRINK")); err == nil {
		shrinkFor = d
	}
}

// report prints a program on which the two differ, as small as possible.
func report(t *testing.T, seed uint64, tape *lanetest.Tape, was error) {
	start := time.Now()
	word := func(err error) string { return strings.Join(strings.Fields(err.Error())[:2], " ") }
	small := lanetest.Shrink(tape, 30000, func(t *lanetest.Tape) bool {
		if time.Since(start) > shrinkFor {
			return false
		}
		_, err := check(t)
		return err != nil && !errors.Is(err, lanetest.ErrTooLong) && word(err) == word(was)
	})

	c, err := check(small)
	var text strings.Builder
	if m, bad := spirv.Parse(c.Module); bad == nil {
		_ = m.Disassemble(&text, nil)
	} else {
		fmt.Fprintf(&text, "%v", bad)
	}

	code := text.String()
	if at := strings.Index(code, "OpFunction "); at > 0 && os.Getenv("LANE_ALL") == "" {
		code = code[strings.LastIndexByte(code[:at], '\n'):]
	}

	t.Errorf("seed %d: %v\nsmaller: %v\n%+v, grid %v, constants %v\n%s", seed, was, err, c.Options, c.Launch.Grid, c.Manifest.Constants, code)
}
