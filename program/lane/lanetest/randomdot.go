package lanetest

import "capgpu/program/spirv"

// integerDot is a product of two vectors of integers, at times with an accumulator.
func (g *generator) integerDot(t shape, sub func(shape) spirv.ID) spirv.ID {
	var signs []kind // of the operands
	ops := [2]spirv.Opcode{spirv.OpUDot, spirv.OpUDotAccSat}
	switch n := g.n(3); {
	case n == 0 && t.k.unsigned():
		signs = []kind{u32, u32}
	case n == 1:
		ops, signs = [2]spirv.Opcode{spirv.OpSUDot, spirv.OpSUDotAccSat}, []kind{i32, u32}
	default:
		ops, signs = [2]spirv.Opcode{spirv.OpSDot, spirv.OpSDotAccSat}, []kind{i32, i32}
	}

	packed, sum := g.n(2) == 1, g.n(2)
	args := []any{}
	width, parts := t.k, 2+g.n(3) // of vectors: the result's, or less
	if t.k.long() && g.n(2) == 1 {
		width = u32
	}
	for _, k := range signs {
		switch {
		case packed:
			args = append(args, sub(shape{k, 1}))
		case width.unsigned() == k.unsigned():
			args = append(args, sub(shape{width, parts}))
		default:
			args = append(args, sub(shape{otherSign[width], parts}))
		}
	}
	if sum == 1 {
		args = append(args, sub(t))
	}
	if packed {
		args = append(args, uint32(spirv.PackedVectorFormatPackedVectorFormat4x8Bit))
	}
	return g.op(ops[sum], t, args...)
}

// otherSign is a kind of the other signedness.
var otherSign = map[kind]kind{u8: i8, i8: u8, u16: i16, i16: u16, u32: i32, i32: u32, u64: i64, i64: u64}
