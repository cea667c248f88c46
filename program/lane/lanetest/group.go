package lanetest

import (
	"fmt"
	"math"

	"capgpu/program/spirv"
)

// group does a subgroup operation for the active lanes of one subgroup. args has
// the operands that are values, by lane of the subgroup.
func (m *machine) group(in *spirv.Inst, active []int, args map[int][]value) map[int]value {
	t := m.typ(in.Type)
	out := map[int]value{}
	first := active[0]
	all := func(f func(lane int) value) map[int]value {
		for _, lane := range active {
			out[lane] = f(lane)
		}
		return out
	}

	size := uint64(m.options.SubgroupSize)
	ballot := func(v value) uint64 { // the bits that are lanes
		return (v.parts[0].bits | v.parts[1].bits<<32) & mask(size)
	}

	// from is the value of another lane; 0 if it is not active.
	from := func(lane uint64) value {
		if v, ok := args[int(min(lane, 64))]; ok {
			return v[0]
		}
		return zero(t)
	}

	switch in.Op {
	case spirv.OpGroupNonUniformElect:
		return all(func(lane int) value { return value{bits: truth(lane == first)} })

	case spirv.OpGroupNonUniformAll, spirv.OpGroupNonUniformAny, spirv.OpGroupNonUniformBallot:
		set := uint64(0)
		for _, lane := range active {
			set |= args[lane][0].bits << lane
		}
		everyone := uint64(0)
		for _, lane := range active {
			everyone |= 1 << lane
		}
		switch in.Op {
		case spirv.OpGroupNonUniformAll:
			return all(func(int) value { return value{bits: truth(set == everyone)} })
		case spirv.OpGroupNonUniformAny:
			return all(func(int) value { return value{bits: truth(set != 0)} })
		}
		return all(func(int) value { return of(t, []uint64{set & mask(32), set >> 32, 0, 0}) })

	case spirv.OpGroupNonUniformAllEqual:
		equal := true
		for _, lane := range active {
			a, b := args[lane][0].components(), args[first][0].components()
			for i := range a {
				equal = equal && a[i] == b[i]
			}
		}
		return all(func(int) value { return value{bits: truth(equal)} })

	case spirv.OpGroupNonUniformBroadcastFirst:
		return all(func(int) value { return args[first][0] })
	case spirv.OpGroupNonUniformBroadcast, spirv.OpGroupNonUniformShuffle:
		return all(func(lane int) value { return from(args[lane][1].bits) })

	case spirv.OpGroupNonUniformQuadBroadcast:
		return all(func(lane int) value { return from(uint64(lane)/4*4 + args[lane][1].bits%4) })
	case spirv.OpGroupNonUniformQuadSwap: // the other column, row, or both
		return all(func(lane int) value {
			column, row := uint64(lane)%2, uint64(lane)/2%2
			switch args[lane][1].bits {
			case 0:
				column = 1 - column
			case 1:
				row = 1 - row
			default:
				column, row = 1-column, 1-row
			}
			return from(uint64(lane)/4*4 + 2*row + column)
		})

	case spirv.OpGroupNonUniformShuffleXor:
		return all(func(lane int) value { return from(uint64(lane) ^ args[lane][1].bits) })
	case spirv.OpGroupNonUniformShuffleUp, spirv.OpGroupNonUniformShuffleDown:
		return all(func(lane int) value {
			n := args[lane][1].bits
			switch {
			case in.Op == spirv.OpGroupNonUniformShuffleUp && n <= uint64(lane):
				return from(uint64(lane) - n)
			case in.Op == spirv.OpGroupNonUniformShuffleDown && uint64(lane)+n < size:
				return from(uint64(lane) + n)
			}
			return args[lane][0]
		})

	case spirv.OpGroupNonUniformInverseBallot:
		return all(func(lane int) value { return value{bits: ballot(args[lane][0]) >> lane & 1} })
	case spirv.OpGroupNonUniformBallotBitExtract:
		return all(func(lane int) value {
			v := args[lane][0]
			return value{bits: (v.parts[0].bits | v.parts[1].bits<<32) >> (args[lane][1].bits & 63) & 1}
		})

	case spirv.OpGroupNonUniformBallotBitCount:
		return all(func(lane int) value {
			set := ballot(args[lane][0])
			switch spirv.GroupOperation(in.Args[1]) {
			case spirv.GroupOperationInclusiveScan:
				set &= 2<<lane - 1
			case spirv.GroupOperationExclusiveScan:
				set &= 1<<lane - 1
			}
			return value{bits: arithmetic(spirv.OpBitCount, 64, set, 0)}
		})

	case spirv.OpGroupNonUniformBallotFindLSB, spirv.OpGroupNonUniformBallotFindMSB:
		return all(func(lane int) value {
			set := ballot(args[lane][0])
			if in.Op == spirv.OpGroupNonUniformBallotFindLSB {
				return value{bits: glslInt(spirv.GLSLFindILsb, 64, [3]uint64{set}) & mask(32)}
			}
			return value{bits: glslInt(spirv.GLSLFindUMsb, 64, [3]uint64{set}) & mask(32)}
		})
	}

	if spirv.GroupOperation(in.Args[1]) == spirv.GroupOperationClusteredReduce {
		return m.clusters(in, active, args)
	}

	if t.scalar().half() {
		for lane := range args {
			args[lane] = []value{recast(args[lane][0], 16, 32)}
		}
		out := m.reduce(in, t.single(), active, args)
		for lane := range out {
			out[lane] = recast(out[lane], 32, 16)
		}
		return out
	}

	return m.reduce(in, t, active, args)
}

// clusters are reductions of some lanes each.
func (m *machine) clusters(in *spirv.Inst, active []int, args map[int][]value) map[int]value {
	size := int(min(m.constant(in.Arg(3)).bits, 64))
	whole := *in
	whole.Args = []uint32{in.Args[0], uint32(spirv.GroupOperationReduce), in.Args[2]}
	out := map[int]value{}
	for first := 0; first < 64; first += size {
		var lanes []int
		own := map[int][]value{}
		for _, lane := range active {
			if lane/size*size == first {
				lanes = append(lanes, lane)
				own[lane] = args[lane][:1]
			}
		}
		if len(lanes) == 0 {
			continue
		}
		for lane, v := range m.group(&whole, lanes, own) {
			out[lane] = v
		}
	}
	return out
}

// reduce is a reduction or a scan.
func (m *machine) reduce(in *spirv.Inst, t *typ, active []int, args map[int][]value) map[int]value {
	out := map[int]value{}
	first := active[0]
	w := t.scalar().width
	acc := make([]uint64, len(args[first][0].components()))
	for i := range acc {
		acc[i] = identity(in.Op, w)
	}

	operation := spirv.GroupOperation(in.Args[1])
	for _, lane := range active {
		before := of(t, acc)
		for i, x := range args[lane][0].components() {
			acc[i] = combine(in.Op, w, acc[i], x)
		}
		if out[lane] = of(t, acc); operation == spirv.GroupOperationExclusiveScan {
			out[lane] = before
		}
	}

	if operation == spirv.GroupOperationReduce {
		for _, lane := range active {
			out[lane] = of(t, acc)
		}
	}

	return out
}

// identity is the initial value of a reduction.
func identity(op spirv.Opcode, w uint64) uint64 {
	switch op {
	case spirv.OpGroupNonUniformIMul:
		return 1
	case spirv.OpGroupNonUniformFMul:
		return fromFloat(1, w)
	case spirv.OpGroupNonUniformSMin:
		return mask(w - 1)
	case spirv.OpGroupNonUniformSMax:
		return 1 << (w - 1)
	case spirv.OpGroupNonUniformUMin, spirv.OpGroupNonUniformBitwiseAnd, spirv.OpGroupNonUniformLogicalAnd:
		return mask(w)
	case spirv.OpGroupNonUniformFMin:
		return fromFloat(math.Inf(1), w)
	case spirv.OpGroupNonUniformFMax:
		return fromFloat(math.Inf(-1), w)
	}
	return 0
}

func combine(op spirv.Opcode, w, a, b uint64) uint64 {
	switch op {
	case spirv.OpGroupNonUniformIAdd:
		return arithmetic(spirv.OpIAdd, w, a, b)

	case spirv.OpGroupNonUniformFAdd:
		return arithmetic(spirv.OpFAdd, w, a, b)
	case spirv.OpGroupNonUniformIMul:
		return arithmetic(spirv.OpIMul, w, a, b)

	case spirv.OpGroupNonUniformFMul:
		return arithmetic(spirv.OpFMul, w, a, b)
	case spirv.OpGroupNonUniformSMin:
		return glslInt(spirv.GLSLSMin, w, [3]uint64{a, b}) & mask(w)

	case spirv.OpGroupNonUniformSMax:
		return glslInt(spirv.GLSLSMax, w, [3]uint64{a, b}) & mask(w)
	case spirv.OpGroupNonUniformUMin:
		return min(a, b)

	case spirv.OpGroupNonUniformUMax:
		return max(a, b)
	case spirv.OpGroupNonUniformFMin:
		return glslFloat(spirv.GLSLNMin, w, [3]uint64{a, b})

	case spirv.OpGroupNonUniformFMax:
		return glslFloat(spirv.GLSLNMax, w, [3]uint64{a, b})
	case spirv.OpGroupNonUniformBitwiseAnd, spirv.OpGroupNonUniformLogicalAnd:
		return a & b

	case spirv.OpGroupNonUniformBitwiseOr, spirv.OpGroupNonUniformLogicalOr:
		return a | b
	case spirv.OpGroupNonUniformBitwiseXor, spirv.OpGroupNonUniformLogicalXor:
		return a ^ b
	}
	panic(fmt.Errorf("the subgroup operation %v", op))
}
