package verify_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// graph is a kernel of a few blocks with random branches and merges. Most are
// nonsense; many others are structured in odd ways that no compiler emits.
func graph(rng *rand.Rand) []byte {
	b := spirvtest.New()
	gid := b.Input(b.Uint(32), spirv.BuiltInLocalInvocationIndex)
	var c, x id
	n := 4 + rng.IntN(8)
	blocks(b, n, func(i int, l []id) {
		if i == 0 {
			x = b.Load(b.Uint(32), gid)
			c = b.Op(spirv.OpULessThan, b.Bool(), x, b.U32(3))
		}
		if i == n-1 {
			b.Return()
			return
		}

		// Mostly forward, and near.
		to := func() id {
			if rng.IntN(12) == 0 {
				return l[1+rng.IntN(n-1)]
			}
			return l[min(n-1, i+1+rng.IntN(3)*rng.IntN(3))]
		}

		next := l[i+1]
		switch rng.IntN(8) {
		case 0:
			merge := to()
			b.SelectionMerge(merge)
			args := []any{x, []id{merge, next, to()}[rng.IntN(3)]}
			for k := range 1 + rng.IntN(3) {
				args = append(args, k, []id{merge, next, to()}[rng.IntN(3)])
			}
			b.Do(spirv.OpSwitch, args...)

		case 1, 2:
			merge := to()
			b.SelectionMerge(merge)
			b.BranchIf(c, next, []id{merge, to()}[rng.IntN(2)])

		case 3:
			merge, cont := to(), to()
			b.LoopMerge(merge, cont)
			if rng.IntN(2) == 0 {
				b.Branch(next)
			} else {
				b.BranchIf(c, next, merge)
			}

		case 4:
			b.BranchIf(c, next, to())
		case 5:
			b.BranchIf(c, l[1+rng.IntN(n-1)], to())

		case 6:
			if rng.IntN(3) == 0 {
				b.Return()
			} else {
				b.Branch(l[max(1, i-rng.IntN(5))])
			}

		default:
			b.Branch(to())
		}
	})

	return b.Bytes()
}

// TestGraphsAgainstSpirvVal: spirv-val accepts all control flow that Admit accepts
// as structured. VERIFY_GRAPHS sets how many are tried, VERIFY_SEED which.
func TestGraphsAgainstSpirvVal(t *testing.T) {
	if _, err := exec.LookPath("spirv-val"); err != nil {
		t.Skip("spirv-val is not installed: this test did not run (Debian package spirv-tools)")
	}

	count, seed, limit := 20000, uint64(1), 80
	if s := os.Getenv("VERIFY_GRAPHS"); s != "" {
		count, _ = strconv.Atoi(s)
		limit = count
	}
	if s := os.Getenv("VERIFY_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}

	rng := rand.New(rand.NewPCG(seed, 1))
	admitted := 0
	for i := 0; i < count && admitted < limit; i++ {
		module := graph(rng)
		if _, err := verify.Admit(module, verify.DefaultLimits()); err != nil {
			continue
		}
		admitted++
		if says := spirvVal(t, module); says != "" {
			if dir := os.Getenv("VERIFY_KEEP"); dir != "" {
				require.NoError(t, os.WriteFile(fmt.Sprintf("%s/graph-%d.spv", dir, i), module, 0o644))
			}
			t.Errorf("graph %d is admitted, and spirv-val says: %s", i, says)
		}
	}

	t.Logf("%d graphs admitted", admitted)
}
