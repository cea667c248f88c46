package lanetest

import "capgpu/program/spirv"

// An instruction of several steps, or of less than the best accuracy, is done on
// halves as on f32, and its result is rounded.

func (t *typ) half() bool { return t.number() && t.op == spirv.OpTypeFloat && t.width == 16 }

// single is the type with f32 in the place of halves.
func (t *typ) single() *typ {
	s := &typ{op: spirv.OpTypeFloat, width: 32}
	if t.op == spirv.OpTypeVector {
		return &typ{op: t.op, elem: s, n: t.n}
	}
	return s
}

// recast converts the components of a value between floats of two widths.
func recast(v value, from, to uint64) value {
	if v.parts == nil {
		return value{bits: fromFloat(toFloat(v.bits, from), to)}
	}
	parts := make([]value, len(v.parts))
	for i := range parts {
		parts[i] = recast(v.parts[i], from, to)
	}
	return value{parts: parts}
}

// inSingles is an instruction of GLSL.std.450 on halves.
func inSingles(g spirv.GLSL, t *typ, args []value) value {
	singles := make([]value, len(args))
	for i := range args {
		if singles[i] = args[i]; g != spirv.GLSLLdexp || i == 0 {
			singles[i] = recast(args[i], 16, 32)
		}
	}
	v, _ := glsl(g, t.single(), singles)
	return recast(v, 32, 16)
}
