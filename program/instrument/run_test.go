package instrument_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

func admitted(t testing.TB, b *spirvtest.Builder) *verify.Program {
	t.Helper()
	p, err := verify.Admit(b.Bytes(), verify.DefaultLimits())
	require.NoError(t, err)
	return p
}

// launch runs an instrumented program once, on its bindings.
func launch(t *testing.T, p *verify.Program, grid program.Dim3, bindings [][]byte, inline []byte, first, most uint32) *launched {
	t.Helper()
	i := accepted(t, p)
	got, err := run(p, i, again(t, p, i), lane.Options{Block: p.Info.Block}, &lane.Launch{Grid: grid, Bindings: bindings, Inline: inline}, first, most)
	require.NoError(t, err)
	require.Equal(t, lane.Result{}, got.result)
	return got
}

// TestEndlessLoops: a kernel that does not end has a bound, and says so.
func TestEndlessLoops(t *testing.T) {
	data, _ := library.Bundle("spin")
	p, err := verify.Admit(data, verify.DefaultLimits())
	require.NoError(t, err)
	for _, most := range []uint32{1, 256, 257, 5000} {
		got := launch(t, p, program.Dim3{X: 2, Y: 1, Z: 1}, nil, nil, instrument.NoEntry, most)
		require.Equal(t, instrument.Report{End: instrument.TooLong}, got.report)
		at, early := instrument.First(got.trap)
		require.True(t, early)
		require.Equal(t, uint32(entry), at)
	}
}

// nested is a function with a loop in a loop, called twice in a third: rounds³ · 2
// rounds, counted in the lane's word of binding 0.
func nested(rounds uint32) *spirvtest.Builder {
	b := spirvtest.New()
	u := b.Uint(32)
	a := b.Buffer(0, u, 4)
	index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
	loop := func(body func()) {
		k := b.Local(u)
		b.Store(k, b.U32(0))
		b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, k), b.U32(rounds)) },
			func(spirv.ID, spirv.ID) bool { body(); return true },
			func() { b.Store(k, b.Op(spirv.OpIAdd, u, b.Load(u, k), b.U32(1))) })
	}

	f := b.Func(u, u)
	at := b.Access(spirv.StorageClassStorageBuffer, u, a, b.U32(0), b.Param(0))
	loop(func() {
		loop(func() { b.Store(at, b.Op(spirv.OpIAdd, u, b.Load(u, at), b.U32(1))) })
	})
	b.ReturnValue(b.U32(0))
	b.End()

	main := b.Func(b.Void())
	lane := b.Load(u, index)
	loop(func() {
		b.Call(u, f, lane)
		b.Call(u, f, lane)
	})
	b.Return()
	b.End()
	b.Compute(main, "main", 4, 1, 1)
	return b
}

// TestRounds: the bound counts the rounds of all loops of a lane, in steps of
// PollRounds, and once it is reached no loop does more than a round.
func TestRounds(t *testing.T) {
	p := admitted(t, nested(10))
	grid := program.Dim3{X: 1, Y: 1, Z: 1}
	got := launch(t, p, grid, [][]byte{make([]byte, 16)}, nil, instrument.NoEntry, 1<<16)
	require.Equal(t, instrument.Whole, got.report.End)
	require.Equal(t, ints(2000, 2000, 2000, 2000), got.bindings[0][:16])

	got = launch(t, p, grid, [][]byte{make([]byte, 16)}, nil, instrument.NoEntry, 1000)
	require.Equal(t, instrument.TooLong, got.report.End)
	for lane := range 4 {
		n := binary.LittleEndian.Uint32(got.bindings[0][4*lane:])
		require.Less(t, n, uint32(1000+instrument.PollRounds))
		require.Greater(t, n, uint32(600))
	}
}

// TestStop: the stop word ends loops, and is told from the bound.
func TestStop(t *testing.T) {
	p := admitted(t, nested(1000))
	i := accepted(t, p)
	k, err := lane.Compile(again(t, p, i), lane.Options{})
	require.NoError(t, err)
	trap := make([]byte, instrument.BufferBytes(1))
	instrument.ArmHead(trap)
	require.NoError(t, instrument.ArmSlot(trap[instrument.SlotOff(0):], []uint64{16}, 0))
	binary.LittleEndian.PutUint32(trap[instrument.StopOff:], 1)
	a := make([]byte, 16)
	l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{a, trap}, Inline: make([]byte, 4)}
	require.Equal(t, lane.Result{}, k.NewWorker().Run(l, 0, 1, nil))
	r, err := i.Decode(trap[instrument.SlotOff(0):], l.Grid, []uint64{16})
	require.NoError(t, err)
	require.Equal(t, instrument.Report{End: instrument.Stopped}, r)
	require.Less(t, binary.LittleEndian.Uint32(a), uint32(2*instrument.PollRounds))
}

// TestList: what comes after a trap does nothing, in the midst of a list; what came
// before is done.
func TestList(t *testing.T) {
	p := newBench(t, 0x10300, func(w *workbench) { w.Store(w.ptrA(w.Load(w.u, w.ptrB(w.i))), w.U32(77)) })
	i := accepted(t, p)
	k, err := lane.Compile(again(t, p, i), lane.Options{Block: p.Info.Block})
	require.NoError(t, err)
	w := k.NewWorker()

	const entries, bad = 5, 2
	trap := make([]byte, instrument.BufferBytes(entries))
	instrument.ArmHead(trap)
	a := make([][]byte, entries)
	for e := range entries {
		a[e] = make([]byte, 256)
		if e == bad {
			a[e] = make([]byte, 200, 256)
		}
		lengths := []uint64{uint64(len(a[e])), 256, 0}
		require.NoError(t, instrument.ArmSlot(trap[instrument.SlotOff(e):], lengths, 0))
	}

	for e := range entries {
		inline := append(ints(5, 1, 2, 3), ints(uint32(e))...)
		l := &lane.Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{a[e][:256], counting(64), make([]byte, 16), trap}, Inline: inline}
		require.Equal(t, lane.Result{}, w.Run(l, 0, 1, nil))
	}

	at, early := instrument.First(trap)
	require.True(t, early)
	require.Equal(t, uint32(bad), at)
	for e := range entries {
		r, err := i.Decode(trap[instrument.SlotOff(e):], program.Dim3{X: 1, Y: 1, Z: 1}, []uint64{200, 256, 0})
		require.NoError(t, err)
		want := instrument.Report{}
		if e == bad {
			want = instrument.Report{End: instrument.Trapped, Trap: outcome.Trap{Kind: outcome.OutOfBounds, Lane: 50, Offset: 200}}
		}
		require.Equal(t, want, r)
		require.Equal(t, e <= bad, bytes.Contains(a[e], []byte{77}), "entry %d", e)
	}
}

// TestSharedIsZero: shared memory begins as zeros, whatever was there: the engine
// has 0xCD.
func TestSharedIsZero(t *testing.T) {
	b := spirvtest.New()
	u := b.Uint(32)
	out := b.Buffer(0, u, 4)
	block := []spirv.ID{b.Spec(0, u, 1), b.Spec(1, u, 1), b.U32(1)}
	b.Decorate(b.SpecComposite(b.Vec(u, 3), block...), spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
	one := b.Shared(u)
	pairs := b.Shared(b.Array(b.Struct(b.Vec(u, 2), b.Bool()), b.U32(50), 0))
	many := b.Shared(b.Array(u, b.Spec(3, u, 1), 0))
	index := b.Input(b.Int(32), spirv.BuiltInLocalInvocationIndex)
	main := b.Func(b.Void())
	lane1 := b.Op(spirv.OpBitcast, u, b.Load(b.Int(32), index))
	sum := b.Load(u, one)
	or := func(v spirv.ID) { sum = b.Op(spirv.OpBitwiseOr, u, sum, v) }
	for k := range uint32(2) {
		or(b.Load(u, b.Access(spirv.StorageClassWorkgroup, u, pairs, b.Op(spirv.OpUMod, u, lane1, b.U32(50)), b.U32(0), b.U32(k))))
		or(b.Load(u, b.Access(spirv.StorageClassWorkgroup, u, pairs, b.U32(49-k), b.U32(0), b.U32(k))))
		or(b.Load(u, b.Access(spirv.StorageClassWorkgroup, u, many, b.U32(99+k))))
	}
	bit := b.Load(b.Bool(), b.Access(spirv.StorageClassWorkgroup, b.Bool(), pairs, b.U32(7), b.U32(1)))
	or(b.Op(spirv.OpSelect, u, bit, b.U32(1), b.U32(0)))
	b.Store(b.Access(spirv.StorageClassStorageBuffer, u, out, b.U32(0), lane1), sum)
	b.Store(b.Access(spirv.StorageClassWorkgroup, u, many, b.Op(spirv.OpUMod, u, lane1, b.U32(101))), b.U32(7))
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)

	p := admitted(t, b)
	i := accepted(t, p)
	for _, block := range []program.Dim3{{X: 1, Y: 1, Z: 1}, {X: 7, Y: 3, Z: 1}, {X: 128, Y: 2, Z: 1}} {
		o := lane.Options{Block: block, SharedBytes: 404}
		a := bytes.Repeat([]byte{9}, 1024)
		l := &lane.Launch{Grid: program.Dim3{X: 3, Y: 1, Z: 1}, Bindings: [][]byte{a}}
		got, err := run(p, i, again(t, p, i), o, l, instrument.NoEntry, 1<<12)
		require.NoError(t, err)
		require.Equal(t, instrument.Report{}, got.report)
		n := 4 * int(block.Count())
		require.Equal(t, make([]byte, n), got.bindings[0][:n], "%v", block)
	}
}

// TestWildArithmetic: what SPIR-V leaves open is what the engine does, on numbers
// beyond all ranges.
func TestWildArithmetic(t *testing.T) {
	var odd []byte
	for _, v := range []float64{0, math.Copysign(0, -1), 0.5, -0.5, 1.5, -1.5, 0x1p31, -0x1p31, -0x1.8p31, 0x1p32, 0x1p63, -0x1p63, -0x1.1p63,
		0x1p64, 0x1.ffffffffffffep63, 2147483647.5, -2147483648.5, 4294967295.5, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN()} {
		odd = binary.LittleEndian.AppendUint64(odd, math.Float64bits(v))
		odd = binary.LittleEndian.AppendUint64(odd, uint64(math.Float32bits(float32(v))))
	}
	for _, v := range []uint64{1, 2, 3, 31, 32, 33, 63, 64, 65, math.MaxUint64, 1 << 63, 1 << 31, 0x7FFFFFFF, 0xFFFFFFFF80000000} {
		odd = binary.LittleEndian.AppendUint64(odd, v)
	}
	n := uint32(len(odd) / 8)

	b := spirvtest.New()
	b.Capability(spirv.CapabilityInt64, spirv.CapabilityFloat64)
	u, l, il := b.Uint(32), b.Uint(64), b.Int(64)
	in, out := b.Buffer(0, l, 8), b.Buffer(1, l, 8)
	id := b.Input(b.Vec(u, 3), spirv.BuiltInWorkgroupId)
	main := b.Func(b.Void())
	at := func(k int) spirv.ID {
		return b.Load(u, b.Access(spirv.StorageClassInput, u, id, b.U32(uint32(k))))
	}
	value := func(k int) spirv.ID {
		return b.Load(l, b.Access(spirv.StorageClassStorageBuffer, l, in, b.U32(0), at(k)))
	}

	x, y := value(0), value(1)
	x32, y32 := b.Op(spirv.OpUConvert, u, x), b.Op(spirv.OpUConvert, u, y)
	i32 := func(v spirv.ID) spirv.ID { return b.Op(spirv.OpBitcast, b.Int(32), v) }
	i64 := func(v spirv.ID) spirv.ID { return b.Op(spirv.OpBitcast, il, v) }
	f32, f64 := b.Op(spirv.OpBitcast, b.Float(32), x32), b.Op(spirv.OpBitcast, b.Float(64), x)
	var results []spirv.ID
	keep := func(t, v spirv.ID) {
		switch t {
		case u:
			v = b.Op(spirv.OpUConvert, l, v)
		case b.Int(32):
			v = b.Op(spirv.OpUConvert, l, b.Op(spirv.OpBitcast, u, v))
		case il:
			v = b.Op(spirv.OpBitcast, l, v)
		}
		results = append(results, v)
	}

	for _, f := range []spirv.ID{f32, f64} {
		keep(u, b.Op(spirv.OpConvertFToU, u, f))
		keep(l, b.Op(spirv.OpConvertFToU, l, f))
		keep(b.Int(32), b.Op(spirv.OpConvertFToS, b.Int(32), f))
		keep(il, b.Op(spirv.OpConvertFToS, il, f))
	}

	// Divisors that are not 0, among them -1.
	nonzero := func(t, v, one spirv.ID) spirv.ID {
		return b.Op(spirv.OpSelect, t, b.Op(spirv.OpIEqual, b.Bool(), v, b.Null(t)), one, v)
	}
	for _, op := range []spirv.Opcode{spirv.OpSDiv, spirv.OpSRem, spirv.OpSMod} {
		keep(b.Int(32), b.Op(op, b.Int(32), i32(x32), nonzero(b.Int(32), i32(y32), b.I32(1))))
		keep(il, b.Op(op, il, i64(x), nonzero(il, i64(y), b.I64(1))))
		keep(b.Int(32), b.Op(op, b.Int(32), i32(x32), b.I32(-1)))
		keep(b.Int(32), b.Op(op, b.Int(32), i32(x32), b.I32(-7)))
	}
	for _, op := range []spirv.Opcode{spirv.OpShiftLeftLogical, spirv.OpShiftRightLogical, spirv.OpShiftRightArithmetic} {
		keep(u, b.Op(op, u, x32, y32))
		keep(l, b.Op(op, l, x, y32))
		keep(u, b.Op(op, u, x32, y))
		keep(il, b.Op(op, il, i64(x), i64(y)))
	}

	few := b.Op(spirv.OpUMod, u, y32, b.U32(71))
	more := b.Op(spirv.OpUDiv, u, y32, b.U32(5))
	keep(u, b.Op(spirv.OpBitFieldUExtract, u, x32, few, more))
	keep(b.Int(32), b.Op(spirv.OpBitFieldSExtract, b.Int(32), i32(x32), few, more))
	keep(u, b.Op(spirv.OpBitFieldInsert, u, x32, b.U32(0x5A5A5A5A), i32(few), more))
	v := b.Vec(u, 3)
	vec := b.Op(spirv.OpCompositeConstruct, v, x32, b.U32(3), b.U32(9))
	keep(u, b.Op(spirv.OpVectorExtractDynamic, u, vec, b.Op(spirv.OpUMod, u, few, b.U32(3))))
	vec = b.Op(spirv.OpVectorInsertDynamic, v, vec, b.U32(1), i64(b.Op(spirv.OpUMod, l, y, b.U64(3))))
	for k := range 3 {
		keep(u, b.Op(spirv.OpCompositeExtract, u, vec, k))
	}

	place := b.Op(spirv.OpIAdd, u, at(0), b.Op(spirv.OpIMul, u, at(1), b.U32(n)))
	for k, r := range results {
		to := b.Op(spirv.OpIAdd, u, b.Op(spirv.OpIMul, u, place, b.U32(uint32(len(results)))), b.U32(uint32(k)))
		b.Store(b.Access(spirv.StorageClassStorageBuffer, l, out, b.U32(0), to), r)
	}
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)

	p := admitted(t, b)
	accepted(t, p)
	bindings := [][]byte{odd, make([]byte, 8*int(n*n)*len(results))}
	verdict, err := difference(t, p, lane.Options{}, &lane.Launch{Grid: program.Dim3{X: n, Y: n, Z: 1}, Bindings: bindings}, 100)
	require.NoError(t, err)
	require.False(t, verdict.trapped)
}
