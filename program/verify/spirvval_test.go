package verify_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/proctest"
	"capgpu/program"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// known are spirv-val's objections to modules that Admit accepts, each with the
// reason.
var known = []struct{ says, why string }{
	{"Merge must immediately precede", "an OpLine may be between a merge instruction and its branch: it says nothing but where"},
	{"Invalid source language operand", "a language of a newer version of the specification means nothing"},
	{"Memory Scope is limited to", "the profile has system scope, with a warning: the Abstract Device Machine does"},
}

// environment is the target of spirv-val for a module's version.
func environment(module []byte) string {
	switch version := binary.LittleEndian.Uint32(module[4:]); {
	case version >= 0x00010600:
		return "vulkan1.3"
	case version >= 0x00010500:
		return "vulkan1.2"
	case version >= 0x00010400:
		return "vulkan1.1spv1.4"
	}
	return "vulkan1.1"
}

// spirvVal runs Khronos's validator: "" if it accepts the module.
func spirvVal(t testing.TB, module []byte) string {
	cmd := exec.Command("spirv-val", "--target-env", environment(module), "--scalar-block-layout", "-")
	cmd.Stdin = bytes.NewReader(module)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	require.IsType(t, &exec.ExitError{}, err)
	return strings.TrimSpace(string(out)) + " "
}

// TestMutants: for every mutant of a real module Admit returns soon, and its error
// is a *Refusal. VERIFY_MUTANTS sets how many are tried.
func TestMutants(t *testing.T) {
	count := 2500
	if s := os.Getenv("VERIFY_MUTANTS"); s != "" {
		count, _ = strconv.Atoi(s)
	}

	rng := rand.New(rand.NewPCG(uint64(count), 2))
	all := modules(t)
	names := slices.Sorted(maps.Keys(all))
	var slowest time.Duration
	for i := range count {
		module := all[names[i%len(names)]]
		if i%2 == 0 {
			module = spirvtest.Mutate(rng, module)
		} else {
			module = cross(rng, module)
		}
		var err error
		slowest = max(slowest, proctest.CPU(func() { _, err = verify.Admit(module, verify.DefaultLimits()) }))
		if err != nil {
			var r *program.Refusal
			require.ErrorAs(t, err, &r)
		}
	}

	require.Less(t, slowest, time.Second)
	t.Logf("%d mutants, the slowest took %v", count, slowest)
}

// cross returns a copy of a module in which one or two instructions have operands
// of others with the same opcode, or another opcode: plausible faults, which get
// far.
func cross(rng *rand.Rand, module []byte) []byte {
	out := slices.Clone(module)
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(out[4*i:]) }
	set := func(i int, w uint32) { binary.LittleEndian.PutUint32(out[4*i:], w) }
	var starts []int
	byOp := map[uint32][]int{}
	for i := 5; i < len(out)/4; {
		w := word(i)
		starts = append(starts, i)
		if op := w & 0xFFFF; w>>16 > 1 {
			byOp[op] = append(byOp[op], i)
		}
		if w>>16 == 0 {
			break
		}
		i += int(w >> 16)
	}

	for n := 1 + rng.IntN(2); n > 0; {
		i := starts[rng.IntN(len(starts))]
		op, size := word(i)&0xFFFF, int(word(i)>>16)
		if op == 5 || op == 6 || op == 7 || op == 3 || size < 2 {
			continue // names and strings
		}

		n--
		k := 1 + rng.IntN(size-1)
		switch rng.IntN(8) {
		case 0: // another instruction's opcode
			j := starts[rng.IntN(len(starts))]
			if word(j)>>16 == word(i)>>16 {
				set(i, word(j))
			}

		case 1: // any word of a like instruction
			j := byOp[op][rng.IntN(len(byOp[op]))]
			set(i+k, word(j+1+rng.IntN(int(word(j)>>16)-1)))

		case 2: // a small change
			set(i+k, word(i+k)+uint32(rng.IntN(5))-2)
		case 3: // operands change places
			l := 1 + rng.IntN(size-1)
			a, b := word(i+k), word(i+l)
			set(i+k, b)
			set(i+l, a)

		default: // the same operand of a like instruction
			j := byOp[op][rng.IntN(len(byOp[op]))]
			if k < int(word(j)>>16) {
				set(i+k, word(j+k))
			}
		}
	}

	return out
}

// TestMutantsAgainstSpirvVal: every mutant of a real module that Admit accepts is
// valid for Khronos's validator too. VERIFY_MUTANTS sets how many are tried, and
// VERIFY_SEED which.
func TestMutantsAgainstSpirvVal(t *testing.T) {
	if _, err := exec.LookPath("spirv-val"); err != nil {
		t.Skip("spirv-val is not installed: this test did not run (Debian package spirv-tools)")
	}

	count, seed := 500, uint64(1)
	if s := os.Getenv("VERIFY_MUTANTS"); s != "" {
		count, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("VERIFY_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}

	all := modules(t)
	// spirv-val checks NonSemantic sets, Admit ignores them.
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(s string) bool { return strings.HasSuffix(s, "_debug") })
	rng := rand.New(rand.NewPCG(seed, 0))
	var admitted int
	var in time.Duration
	objections := map[string]string{}
	for i := range count {
		name := names[i%len(names)]
		module := spirvtest.Mutate(rng, all[name])
		if i%3 != 0 {
			module = cross(rng, all[name])
		}

		start := time.Now()
		_, err := verify.Admit(module, verify.DefaultLimits())
		in += time.Since(start)
		if err != nil {
			continue
		}

		admitted++
		says := spirvVal(t, module)
		if says == "" || slices.ContainsFunc(known, func(k struct{ says, why string }) bool { return strings.Contains(says, k.says) }) {
			continue
		}
		if dir := os.Getenv("VERIFY_KEEP"); dir != "" {
			require.NoError(t, os.WriteFile(fmt.Sprintf("%s/%s-%d.spv", dir, name, i), module, 0o644))
		}

		objections[fmt.Sprintf("%s-%d", name, i)] = says
	}

	t.Logf("%d mutants, %d admitted, %v each", count, admitted, in/time.Duration(count))
	for name, says := range objections {
		t.Errorf("%s is admitted, and spirv-val says: %s", name, says)
	}
}
