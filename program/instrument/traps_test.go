package instrument_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// workbench is a program with buffers A (u32, read and written) and B (u32, read),
// C (u32 n; vec3 of f32, stride 12), push constants (u32 n, u32 m[3]), shared s[8]
// of u32 and t[2][3] of vec2, for workgroups of 64.
type workbench struct {
	*spirvtest.Builder
	u, f, boolean spirv.ID
	a, b, c, push spirv.ID
	s, t          spirv.ID
	i             spirv.ID // GlobalInvocationId.x
}

func newBench(t testing.TB, version uint32, body func(w *workbench)) *verify.Program {
	b := spirvtest.New()
	b.Version = version
	w := &workbench{Builder: b, u: b.Uint(32), f: b.Float(32), boolean: b.Bool()}
	b.Capability(spirv.CapabilityInt64, spirv.CapabilityFloat64)
	w.a, w.b = b.Buffer(0, w.u, 4), b.Buffer(1, w.u, 4)
	w.c = b.BufferOf(2, b.Block([]uint32{0, 4}, w.u, b.RuntimeArray(b.Vec(w.f, 3), 12)))
	w.push = b.Push([]uint32{0, 4}, w.u, b.Array(w.u, b.U32(3), 4))
	w.s = b.Shared(b.Array(w.u, b.U32(8), 0))
	w.t = b.Shared(b.Array(b.Array(b.Vec(w.f, 2), b.U32(3), 0), b.U32(2), 0))
	v3 := b.Vec(w.u, 3)
	global := b.Input(v3, spirv.BuiltInGlobalInvocationId)
	main := b.Func(b.Void())
	w.i = b.Op(spirv.OpCompositeExtract, w.u, b.Load(v3, global), 0)
	body(w)
	b.Return()
	b.End()
	b.Compute(main, "main", 64, 1, 1)
	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	return p
}

func (w *workbench) ptrA(index spirv.ID) spirv.ID {
	return w.Access(spirv.StorageClassStorageBuffer, w.u, w.a, w.U32(0), index)
}

func (w *workbench) ptrB(index spirv.ID) spirv.ID {
	return w.Access(spirv.StorageClassStorageBuffer, w.u, w.b, w.U32(0), index)
}

func (w *workbench) put(v spirv.ID) { w.Store(w.ptrA(w.i), v) }

func (w *workbench) op(op spirv.Opcode, a, b spirv.ID) spirv.ID { return w.Op(op, w.u, a, b) }

func ints(v ...uint32) (out []byte) {
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, x)
	}
	return out
}

func counting(n int) []byte {
	var v []uint32
	for i := range n {
		v = append(v, uint32(i))
	}
	return ints(v...)
}

// TestTraps: the record is the trap of the engine, of which the table says which.
func TestTraps(t *testing.T) {
	const none = outcome.NoBinding
	out := func(binding uint16, group, lane uint32, off uint64) outcome.Trap {
		return outcome.Trap{Kind: outcome.OutOfBounds, Binding: binding, Workgroup: group, Lane: lane, Offset: off}
	}
	zero := func(lane uint32) outcome.Trap {
		return outcome.Trap{Kind: outcome.DivideByZero, Binding: none, Lane: lane}
	}
	vec3 := func(w *workbench) spirv.ID { return w.Vec(w.f, 3) }

	for name, c := range map[string]struct {
		body    func(w *workbench)
		a, b, c []byte
		want    outcome.Trap
	}{
		"load": {body: func(w *workbench) { w.put(w.Load(w.u, w.ptrB(w.op(spirv.OpIMul, w.i, w.U32(2))))) },
			want: out(1, 1, 0, 512)},
		"load, far": {body: func(w *workbench) {
			far := w.Op(spirv.OpSelect, w.u, w.Op(spirv.OpIEqual, w.boolean, w.i, w.U32(70)), w.U32(0xFFFFFFFF), w.U32(0))
			w.put(w.Load(w.u, w.ptrB(far)))
		}, want: out(1, 1, 6, 4*0xFFFFFFFF)},
		"load, constant":     {body: func(w *workbench) { w.put(w.Load(w.u, w.ptrB(w.U32(200)))) }, want: out(1, 0, 0, 800)},
		"load, far constant": {body: func(w *workbench) { w.put(w.Load(w.u, w.ptrB(w.U32(0xFFFFFFFE)))) }, want: out(1, 0, 0, 4*0xFFFFFFFE)},
		"store below":        {body: func(w *workbench) { w.Store(w.ptrA(w.op(spirv.OpISub, w.i, w.U32(3))), w.i) }, want: out(0, 0, 0, 4*0xFFFFFFFD)},
		"signed index": {body: func(w *workbench) {
			at := w.Op(spirv.OpISub, w.Int(32), w.Op(spirv.OpBitcast, w.Int(32), w.i), w.I32(1))
			w.Store(w.ptrA(at), w.i)
		}, want: out(0, 0, 0, 4*0xFFFFFFFF)},
		"index of 64 bits": {body: func(w *workbench) {
			at := w.Op(spirv.OpShiftLeftLogical, w.Uint(64), w.Op(spirv.OpUConvert, w.Uint(64), w.i), w.U32(31))
			w.Store(w.ptrA(at), w.i)
		}, want: out(0, 0, 1, 4<<31)},
		"no bytes": {body: func(w *workbench) { w.put(w.Load(w.u, w.ptrB(w.U32(0)))) }, b: []byte{}, want: out(1, 0, 0, 0)},
		"atomic": {body: func(w *workbench) {
			w.Op(spirv.OpAtomicIAdd, w.u, w.ptrA(w.op(spirv.OpIMul, w.i, w.U32(2))), w.U32(1), w.U32(0), w.U32(1))
		}, want: out(0, 1, 0, 512)},

		// A binding that ends within an element: what is there may be used.
		"part of a vector": {body: func(w *workbench) {
			p := w.Access(spirv.StorageClassStorageBuffer, w.f, w.c, w.U32(1), w.U32(2), w.U32(1))
			w.put(w.Op(spirv.OpBitcast, w.u, w.Load(w.f, p)))
		}, c: make([]byte, 36), want: outcome.Trap{}},
		"a vector, in part": {body: func(w *workbench) {
			p := w.Access(spirv.StorageClassStorageBuffer, vec3(w), w.c, w.U32(1), w.U32(2))
			w.put(w.Op(spirv.OpBitcast, w.u, w.Op(spirv.OpCompositeExtract, w.f, w.Load(vec3(w), p), 0)))
		}, c: make([]byte, 36), want: out(2, 0, 0, 36)},
		"a component behind the end": {body: func(w *workbench) {
			at := w.op(spirv.OpBitwiseAnd, w.i, w.U32(3))
			p := w.Access(spirv.StorageClassStorageBuffer, w.f, w.c, w.U32(1), w.U32(0), at)
			w.put(w.Op(spirv.OpBitcast, w.u, w.Load(w.f, p)))
		}, want: out(2, 0, 3, 16)},
		"a component of the last": {body: func(w *workbench) {
			at := w.op(spirv.OpUMod, w.i, w.U32(3))
			p := w.Access(spirv.StorageClassStorageBuffer, w.f, w.c, w.U32(1), w.op(spirv.OpUDiv, w.i, w.U32(3)), at)
			w.put(w.Op(spirv.OpBitcast, w.u, w.Load(w.f, p)))
		}, c: make([]byte, 4+12*5+9), want: out(2, 0, 17, 4+12*5+8)},
		"the fixed part": {body: func(w *workbench) {
			w.put(w.Load(w.u, w.Access(spirv.StorageClassStorageBuffer, w.u, w.c, w.U32(0))))
		}, c: make([]byte, 3), want: out(2, 0, 0, 0)},
		"length": {body: func(w *workbench) {
			w.put(w.Op(spirv.OpArrayLength, w.u, w.c, 1))
		}, c: make([]byte, 4+12*5+11), want: outcome.Trap{}},

		"push constants": {body: func(w *workbench) {
			w.put(w.Load(w.u, w.Access(spirv.StorageClassPushConstant, w.u, w.push, w.U32(1), w.op(spirv.OpUDiv, w.i, w.U32(20)))))
		}, want: out(none, 0, 60, 16)},
		"shared": {body: func(w *workbench) {
			w.Store(w.Access(spirv.StorageClassWorkgroup, w.u, w.s, w.op(spirv.OpUDiv, w.i, w.U32(8))), w.i)
		}, want: out(none, 1, 0, 32)},
		"shared, in two ways": {body: func(w *workbench) {
			p := w.Access(spirv.StorageClassWorkgroup, w.f, w.t, w.U32(1), w.op(spirv.OpUDiv, w.i, w.U32(20)), w.U32(1))
			w.Store(p, w.F32(1))
		}, want: out(none, 0, 60, 24+24+4)},
		"local": {body: func(w *workbench) {
			x := w.Local(w.Array(w.u, w.U32(4), 0))
			w.Store(w.Access(spirv.StorageClassFunction, w.u, x, w.op(spirv.OpUDiv, w.i, w.U32(10))), w.i)
			w.put(w.Load(w.u, w.Access(spirv.StorageClassFunction, w.u, x, w.U32(0))))
		}, want: out(none, 0, 40, 16)},
		"input": {body: func(w *workbench) {
			in := w.Input(w.Vec(w.u, 3), spirv.BuiltInLocalInvocationId)
			w.put(w.Load(w.u, w.Access(spirv.StorageClassInput, w.u, in, w.i)))
		}, want: out(none, 0, 3, 12)},
		"component": {body: func(w *workbench) {
			v := w.Op(spirv.OpCompositeConstruct, w.Vec(w.u, 3), w.i, w.i, w.i)
			w.put(w.Op(spirv.OpVectorExtractDynamic, w.u, v, w.op(spirv.OpUDiv, w.i, w.U32(4))))
		}, want: out(none, 0, 12, 12)},
		"component to set": {body: func(w *workbench) {
			v := w.Op(spirv.OpCompositeConstruct, w.Vec(w.u, 3), w.i, w.i, w.i)
			v = w.Op(spirv.OpVectorInsertDynamic, w.Vec(w.u, 3), v, w.U32(1), w.op(spirv.OpUDiv, w.i, w.U32(3)))
			w.put(w.Op(spirv.OpCompositeExtract, w.u, v, 0))
		}, want: out(none, 0, 9, 12)},
		"copy from": {body: func(w *workbench) {
			x := w.Local(w.u)
			w.Do(spirv.OpCopyMemory, x, w.ptrB(w.op(spirv.OpIMul, w.i, w.U32(3))))
			w.put(w.Load(w.u, x))
		}, want: out(1, 0, 43, 4*129)},
		"copy to": {body: func(w *workbench) {
			x := w.Local(w.u)
			w.Store(x, w.i)
			w.Do(spirv.OpCopyMemory, w.ptrA(w.op(spirv.OpIMul, w.i, w.U32(3))), x)
		}, want: out(0, 0, 43, 4*129)},
		"modf": {body: func(w *workbench) {
			p := w.Access(spirv.StorageClassStorageBuffer, w.f, w.c, w.U32(1), w.i, w.U32(2))
			w.put(w.Op(spirv.OpBitcast, w.u, w.Ext(spirv.GLSLModf, w.f, w.F32(1.5), p)))
		}, c: make([]byte, 4+12*32), want: out(2, 0, 32, 4+12*32+8)},

		"division":  {body: func(w *workbench) { w.put(w.op(spirv.OpUDiv, w.U32(7), w.op(spirv.OpBitwiseXor, w.i, w.U32(3)))) }, want: zero(3)},
		"remainder": {body: func(w *workbench) { w.put(w.op(spirv.OpUMod, w.U32(7), w.op(spirv.OpBitwiseXor, w.i, w.U32(9)))) }, want: zero(9)},
		"of vectors": {body: func(w *workbench) {
			v := w.Vec(w.Int(32), 2)
			x := w.Op(spirv.OpBitcast, w.Int(32), w.i)
			d := w.Op(spirv.OpCompositeConstruct, v, w.I32(-1), w.Op(spirv.OpISub, w.Int(32), x, w.I32(5)))
			w.put(w.Op(spirv.OpBitcast, w.u, w.Op(spirv.OpCompositeExtract, w.Int(32), w.Op(spirv.OpSRem, v, d, d), 0)))
		}, want: zero(5)},
		"unreachable": {body: func(w *workbench) {
			w.If(w.Op(spirv.OpULessThan, w.boolean, w.U32(5), w.i), func() bool { w.Do(spirv.OpUnreachable); return false }, nil)
		}, want: outcome.Trap{Kind: outcome.Unreachable, Binding: none, Lane: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, cc := c.a, c.b, c.c
			if a == nil {
				a = counting(128)
			}
			if b == nil {
				b = counting(128)
			}
			if cc == nil {
				cc = make([]byte, 4+12*128)
			}

			for _, version := range []uint32{0x10300, 0x10500} {
				p := newBench(t, version, c.body)
				i := accepted(t, p)
				l := &lane.Launch{Grid: program.Dim3{X: 2, Y: 1, Z: 1}, Bindings: [][]byte{a, b, cc}, Inline: ints(5, 1, 2, 3)}
				v, err := difference(t, p, lane.Options{Block: p.Info.Block}, l, 1000)
				require.NoError(t, err)
				require.Equal(t, c.want.Kind != outcome.NoTrap, v.trapped)
				require.True(t, v.same)

				got, err := run(p, i, again(t, p, i), lane.Options{Block: p.Info.Block}, l, 0xFFFFFFFF, 1000)
				require.NoError(t, err)
				require.Equal(t, c.want, got.report.Trap)
			}
		})
	}
}
