package lane_test

import (
	"capgpu/program/spirv"
)

func (m *maker) expr(depth int) spirv.ID {
	if depth == 0 || m.n(4) == 0 {
		switch k := m.n(6); {
		case k == 0:
			return m.U32(uint32(m.n(10)))
		case k == 1:
			return m.lane
		case k == 2:
			return m.group
		case k == 3 && m.array != 0 && len(m.vars) == makerVars:
			p := m.Access(spirv.StorageClassFunction, m.u, m.array, m.Op(spirv.OpBitwiseAnd, m.u, m.Load(m.u, m.vars[0]), m.U32(3)))
			return m.Load(m.u, p)
		case len(m.vars) > 0:
			return m.Load(m.u, m.vars[m.n(len(m.vars))])
		}
		return m.lane
	}

	a := m.expr(depth - 1)
	switch m.n(12) {
	case 0, 1, 2:
		return m.Op(spirv.OpIAdd, m.u, a, m.expr(depth-1))

	case 3:
		return m.Op(spirv.OpISub, m.u, a, m.expr(depth-1))
	case 4:
		return m.Op(spirv.OpIMul, m.u, a, m.expr(depth-1))

	case 5:
		return m.Op(spirv.OpBitwiseXor, m.u, a, m.expr(depth-1))
	case 6:
		return m.Op(spirv.OpShiftLeftLogical, m.u, a, m.U32(uint32(m.n(5))))

	case 7:
		return m.Op(spirv.OpUMod, m.u, a, m.U32(uint32(1+m.n(9))))
	case 8, 9:
		at := m.Op(spirv.OpUMod, m.u, a, m.U32(makerIn))
		if m.n(2) == 0 {
			at = m.Op(spirv.OpIAdd, m.u, m.lane, m.Op(spirv.OpUMod, m.u, m.group, m.U32(4)))
			at = m.Op(spirv.OpBitwiseAnd, m.u, at, m.U32(makerIn-1))
		}
		return m.Load(m.u, m.Access(spirv.StorageClassStorageBuffer, m.u, m.in, m.U32(0), at))

	case 10:
		return m.Op(spirv.OpSelect, m.u, m.cond(false), a, m.expr(depth-1))
	}

	return m.Op(spirv.OpConvertFToU, m.u, m.Ext(spirv.GLSLFAbs, m.f, m.real(depth-1)))
}

func (m *maker) real(depth int) spirv.ID {
	if depth == 0 || len(m.reals) < makerReals {
		if len(m.reals) > 0 && m.n(2) == 0 {
			return m.Load(m.f, m.reals[m.n(len(m.reals))])
		}
		return m.F32(float32(m.n(16)) / 4)
	}

	a, b := m.real(depth-1), m.real(depth-1)
	switch m.n(5) {
	case 0:
		return m.Op(spirv.OpFAdd, m.f, m.Op(spirv.OpFMul, m.f, a, b), m.real(depth-1))
	case 1:
		return m.Op(spirv.OpFSub, m.f, a, b)
	case 2:
		return m.Ext(spirv.GLSLFMin, m.f, a, b)
	case 3:
		return m.Op(spirv.OpConvertUToF, m.f, m.Op(spirv.OpUMod, m.u, m.expr(depth-1), m.U32(100)))
	}

	return m.Op(spirv.OpFAdd, m.f, a, b)
}

func (m *maker) cond(uniform bool) spirv.ID {
	if uniform {
		return m.Op(spirv.OpULessThan, m.boolean, m.group, m.U32(uint32(m.n(4))))
	}
	ops := []spirv.Opcode{spirv.OpULessThan, spirv.OpIEqual, spirv.OpINotEqual, spirv.OpSGreaterThan}
	a := m.Op(spirv.OpUMod, m.u, m.expr(2), m.U32(uint32(2+m.n(5))))
	return m.Op(ops[m.n(len(ops))], m.boolean, a, m.U32(uint32(m.n(4))))
}
