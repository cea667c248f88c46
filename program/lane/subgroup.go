package lane

import (
	"math"

	"capgpu/program/spirv"
)

// subgroup is the step of an iSubgroup: a subgroup is a run of consecutive lanes,
// and only its active lanes take part.
func (e *emitter) subgroup(i *ins, d int32) step {
	o, operation := spirv.Opcode(i.imm&0xFFFF), uint32(i.imm>>16)
	var a, b operand
	if len(i.args) > 0 {
		a = e.operand(i.args[0])
	}
	if len(i.args) > 1 {
		b = e.operand(i.args[1])
	}

	wide, cluster := i.wide, int(i.aux)
	if cluster == 0 {
		cluster = e.f.subs // all of the subgroup
	}

	put := func(w *Worker, lane int, v uint64) {
		if wide {
			w.q[d][lane] = v
		} else {
			w.r[d][lane] = uint32(v)
		}
	}

	return func(w *Worker) bool {
		for lo := 0; lo < w.k.lanes; lo += w.k.subs {
			hi := min(lo+w.k.subs, w.k.lanes)
			first := -1
			for lane := lo; lane < hi; lane++ {
				if w.lanes.mask[lane] != 0 {
					first = lane
					break
				}
			}

			if first < 0 {
				continue
			}
			if o >= spirv.OpGroupNonUniformIAdd {
				for at := lo; at < hi; at += cluster {
					scan(w, o, spirv.GroupOperation(operation), a, at, min(at+cluster, hi), wide, put)
				}
				continue
			}

			all := vote(w, o, operation, a, lo, hi, first)
			for lane := lo; lane < hi; lane++ {
				if w.lanes.mask[lane] == 0 {
					continue
				}
				v := all
				switch o {
				case spirv.OpGroupNonUniformElect:
					v = uint64(boolean(lane == first))
				case spirv.OpGroupNonUniformBroadcast, spirv.OpGroupNonUniformShuffle, spirv.OpGroupNonUniformShuffleXor,
					spirv.OpGroupNonUniformShuffleUp, spirv.OpGroupNonUniformShuffleDown:
					v = shuffled(w, o, a, uint32(b.at(w, lane)), lane, lo, hi)
				}
				put(w, lane, v)
			}
		}
		return true
	}
}

// vote is an operation with the same result for all lanes of a subgroup.
func vote(w *Worker, o spirv.Opcode, word uint32, a operand, lo, hi, first int) uint64 {
	switch o {
	case spirv.OpGroupNonUniformBroadcastFirst:
		return a.at(w, first)
	case spirv.OpGroupNonUniformAll, spirv.OpGroupNonUniformAny, spirv.OpGroupNonUniformAllEqual, spirv.OpGroupNonUniformBallot:
	default:
		return 0
	}

	all, some, equal, ballot := true, false, true, uint64(0)
	for lane := lo; lane < hi; lane++ {
		if w.lanes.mask[lane] == 0 {
			continue
		}
		v := a.at(w, lane)
		all = all && v != 0
		some = some || v != 0
		equal = equal && v == a.at(w, first)
		if v != 0 {
			ballot |= 1 << (lane - lo)
		}
	}

	switch o {
	case spirv.OpGroupNonUniformAll:
		return uint64(boolean(all))
	case spirv.OpGroupNonUniformAny:
		return uint64(boolean(some))
	case spirv.OpGroupNonUniformAllEqual:
		return uint64(boolean(equal))
	}

	return ballot >> (32 * word) & (1<<32 - 1)
}

// shuffled is the value of another lane; a missing or inactive lane gives 0, but a
// lane keeps its own value if a shuffle up or down leaves the subgroup.
func shuffled(w *Worker, o spirv.Opcode, a operand, n uint32, lane, lo, hi int) uint64 {
	self := uint32(lane - lo)
	from := n
	switch o {
	case spirv.OpGroupNonUniformShuffleXor:
		from = self ^ n
	case spirv.OpGroupNonUniformShuffleUp:
		if n > self {
			return a.at(w, lane)
		}
		from = self - n
	case spirv.OpGroupNonUniformShuffleDown:
		if uint64(self)+uint64(n) >= uint64(w.k.subs) {
			return a.at(w, lane)
		}
		from = self + n
	}

	if uint64(from) >= uint64(hi-lo) || w.lanes.mask[lo+int(from)] == 0 {
		return 0
	}

	return a.at(w, lo+int(from))
}

// scan is a reduction or a scan, from the lowest lane to the highest.
func scan(w *Worker, o spirv.Opcode, operation spirv.GroupOperation, a operand, lo, hi int, wide bool, put func(*Worker, int, uint64)) {
	acc := identity(o, wide)
	for lane := lo; lane < hi; lane++ {
		if w.lanes.mask[lane] == 0 {
			continue
		}
		before := acc
		acc = merge(o, acc, a.at(w, lane), wide)
		switch operation {
		case spirv.GroupOperationInclusiveScan:
			put(w, lane, acc)
		case spirv.GroupOperationExclusiveScan:
			put(w, lane, before)
		}
	}

	if operation != spirv.GroupOperationReduce && operation != spirv.GroupOperationClusteredReduce {
		return
	}

	for lane := lo; lane < hi; lane++ {
		if w.lanes.mask[lane] != 0 {
			put(w, lane, acc)
		}
	}
}

func identity(o spirv.Opcode, wide bool) uint64 {
	pick := func(narrow uint32, long uint64) uint64 {
		if wide {
			return long
		}
		return uint64(narrow)
	}

	switch o {
	case spirv.OpGroupNonUniformIMul:
		return 1
	case spirv.OpGroupNonUniformFMul:
		return pick(math.Float32bits(1), math.Float64bits(1))
	case spirv.OpGroupNonUniformSMin:
		return pick(math.MaxInt32, math.MaxInt64)
	case spirv.OpGroupNonUniformSMax:
		return pick(1<<31, 1<<63)
	case spirv.OpGroupNonUniformUMin, spirv.OpGroupNonUniformBitwiseAnd, spirv.OpGroupNonUniformLogicalAnd:
		return pick(math.MaxUint32, math.MaxUint64)
	case spirv.OpGroupNonUniformFMin:
		return pick(math.Float32bits(float32(math.Inf(1))), math.Float64bits(math.Inf(1)))
	case spirv.OpGroupNonUniformFMax:
		return pick(math.Float32bits(float32(math.Inf(-1))), math.Float64bits(math.Inf(-1)))
	}

	return 0
}

func merge(o spirv.Opcode, x, y uint64, wide bool) uint64 {
	switch o {
	case spirv.OpGroupNonUniformIAdd:
		return x + y

	case spirv.OpGroupNonUniformIMul:
		return x * y
	case spirv.OpGroupNonUniformUMin:
		return min(x, y)

	case spirv.OpGroupNonUniformUMax:
		return max(x, y)
	case spirv.OpGroupNonUniformBitwiseAnd, spirv.OpGroupNonUniformLogicalAnd:
		return x & y

	case spirv.OpGroupNonUniformBitwiseOr, spirv.OpGroupNonUniformLogicalOr:
		return x | y
	case spirv.OpGroupNonUniformBitwiseXor, spirv.OpGroupNonUniformLogicalXor:
		return x ^ y

	case spirv.OpGroupNonUniformSMin, spirv.OpGroupNonUniformSMax:
		less := int64(x) < int64(y)
		if !wide {
			less = int32(x) < int32(y)
		}
		if less == (o == spirv.OpGroupNonUniformSMin) {
			return x
		}
		return y
	}

	if wide {
		return math.Float64bits(mergeFloat(o, math.Float64frombits(x), math.Float64frombits(y)))
	}

	a, b := math.Float32frombits(uint32(x)), math.Float32frombits(uint32(y))
	return uint64(math.Float32bits(mergeFloat(o, a, b)))
}

// mergeFloat prefers numbers to NaNs, as the minimum of a subgroup should.
func mergeFloat[F float32 | float64](o spirv.Opcode, a, b F) F {
	switch o {
	case spirv.OpGroupNonUniformFAdd:
		return a + b
	case spirv.OpGroupNonUniformFMul:
		return a * b
	case spirv.OpGroupNonUniformFMin:
		if b < a || a != a {
			return b
		}
		return a
	}
	if a < b || a != a {
		return b
	}
	return a
}
