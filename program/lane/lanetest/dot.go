package lanetest

import (
	"math/big"

	"capgpu/program/spirv"
)

// integerDot is a product of vectors of integers, in numbers of any size: the product
// is cut to the result's width, an accumulator is added within its range.
func integerDot(in *spirv.Inst, t *typ, argType func(int) *typ, arg func(int) value) uint64 {
	unsigned := in.Op == spirv.OpUDot || in.Op == spirv.OpUDotAccSat
	mixed := in.Op == spirv.OpSUDot || in.Op == spirv.OpSUDotAccSat
	operands := 2
	if in.Op >= spirv.OpSDotAccSat {
		operands = 3
	}

	number := func(n, width uint64, unsigned bool) *big.Int {
		if unsigned {
			return new(big.Int).SetUint64(n & mask(width))
		}
		return big.NewInt(signed(n, width))
	}
	parts := func(i int, unsigned bool) (all []*big.Int) {
		if len(in.Args) > operands {
			for k := range uint64(4) {
				all = append(all, number(arg(i).bits>>(8*k)&0xFF, 8, unsigned))
			}
			return all
		}
		for _, n := range arg(i).components() {
			all = append(all, number(n, argType(i).scalar().width, unsigned))
		}
		return all
	}

	sum := new(big.Int)
	a, b := parts(0, unsigned), parts(1, unsigned || mixed)
	for k := range a {
		sum.Add(sum, new(big.Int).Mul(a[k], b[k]))
	}
	cut := func(n *big.Int) uint64 {
		return new(big.Int).And(n, new(big.Int).SetUint64(mask(t.width))).Uint64()
	}
	if operands == 2 {
		return cut(sum)
	}

	sum.Add(number(cut(sum), t.width, unsigned), number(arg(2).bits, t.width, unsigned))
	least, most := new(big.Int), new(big.Int).SetUint64(mask(t.width))
	if !unsigned {
		most.Rsh(most, 1)
		least.Not(most)
	}
	if sum.Cmp(least) < 0 {
		sum = least
	}
	if sum.Cmp(most) > 0 {
		sum = most
	}
	return cut(sum)
}
