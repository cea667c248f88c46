package oracle_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/bench/glsl"
	"capgpu/bench/kernelgen"
	"capgpu/bench/oracle"
)

// faulty is the lane engine with one instruction replaced by another.
type faulty struct {
	oracle.Lane
	is, does uint32 // opcodes of the same shape
}

func (f *faulty) Name() string { return "faulty" }

func (f *faulty) Run(l *oracle.Launch) ([][]byte, error) {
	broken := *l
	broken.SPIRV = append([]byte{}, l.SPIRV...)
	for at := 20; at < len(broken.SPIRV); {
		first := binary.LittleEndian.Uint32(broken.SPIRV[at:])
		if first&0xFFFF == f.is {
			binary.LittleEndian.PutUint32(broken.SPIRV[at:], first&^0xFFFF|f.does)
		}
		at += 4 * int(first>>16)
	}
	return f.Lane.Run(&broken)
}

// An engine's fault is found within a few kernels, and the reduced kernel shows it.
func TestFindsAFault(t *testing.T) {
	if err := glsl.Available(); err != nil {
		t.Skip(err)
	}

	const bitReverse, bitCount = 204, 205
	right := oracle.Run{Variant: oracle.Variants[0], Engine: &oracle.Lane{SubgroupSize: 8}}
	wrong := oracle.Run{Variant: oracle.Variants[0], Engine: &faulty{oracle.Lane{SubgroupSize: 8}, bitReverse, bitCount}}
	for seed := range uint64(40) {
		k := kernelgen.Generate(seed, kernelgen.Options{})
		before := k.Statements()
		d, err := oracle.Check(k, []oracle.Run{right, wrong})
		require.NoError(t, err)
		if d == nil {
			continue
		}

		d.Shrink(6 * time.Second)
		var where *oracle.Difference
		require.ErrorAs(t, d.Err, &where)
		require.NotEqual(t, where.WordA, where.WordB)
		require.Less(t, k.Statements(), before)
		require.Contains(t, d.String(), where.Error())
		t.Logf("seed %d: %d statements of %d are left", seed, k.Statements(), before)
		require.Contains(t, k.Source(), "bitfieldReverse")
		return
	}

	t.Fatal("40 kernels, and the fault was not seen")
}

func TestCompare(t *testing.T) {
	a := [][]byte{{1, 2, 3, 4, 5, 6}, nil}
	require.NoError(t, oracle.Compare("a", "b", a, [][]byte{{1, 2, 3, 4, 5, 6}, nil}, nil))
	var d *oracle.Difference
	require.ErrorAs(t, oracle.Compare("a", "b", a, [][]byte{{1, 2, 3, 4, 5, 7}, nil}, nil), &d)
	require.Equal(t, 1, d.Word)
	require.Error(t, oracle.Compare("a", "b", a, [][]byte{{1, 2, 3, 4, 5}, nil}, nil))
	require.Error(t, oracle.Compare("a", "b", a, a[:1], nil))
}
