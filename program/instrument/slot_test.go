package instrument_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/library"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// TestLayout: the layout of the trap buffer is a contract with the engine that
// makes it.
func TestLayout(t *testing.T) {
	require.Equal(t, 256+3*256, instrument.BufferBytes(3))
	require.Equal(t, 256+2*256, instrument.SlotOff(2))
	head := make([]byte, instrument.HeadBytes)
	instrument.ArmHead(head)
	_, early := instrument.First(head)
	require.False(t, early)

	slot := make([]byte, instrument.SlotBytes)
	for k := range slot {
		slot[k] = 0xEE
	}
	require.NoError(t, instrument.ArmSlot(slot, []uint64{1, 1<<32 - 1}, 0))
	require.Equal(t, make([]byte, 124), slot[:124])
	require.Equal(t, ints(1, 1<<32-1, 0), slot[128:140])
	require.Equal(t, ints(instrument.MaxRounds), slot[124:128])
	require.Equal(t, make([]byte, 120), slot[136:])
	require.Error(t, instrument.ArmSlot(slot, []uint64{1 << 32}, 0))
	require.Error(t, instrument.ArmSlot(slot, make([]uint64, program.MaxBindings+1), 0))
}

// TestDecode: a slot is the word of a device that is not trusted.
func TestDecode(t *testing.T) {
	data, _ := library.Bundle("linear_f32")
	p, err := verify.Admit(data, verify.DefaultLimits())
	require.NoError(t, err)
	i := accepted(t, p)
	grid, lengths := program.Dim3{X: 3, Y: 2, Z: 1}, []uint64{64, 64, 64}
	set := func(site, lane, x, y, z uint32) []byte {
		return append(ints(site, lane, x, y, z), make([]byte, instrument.SlotBytes-20)...)
	}

	r, err := i.Decode(set(0, 9, 9, 9, 9), grid, lengths)
	require.NoError(t, err)
	require.Equal(t, instrument.Report{}, r)
	r, err = i.Decode(set(3, 5, 2, 1, 0), grid, lengths)
	require.NoError(t, err)
	require.Equal(t, instrument.Trapped, r.End)
	require.Equal(t, uint32(5), r.Trap.Workgroup)
	for _, bad := range [][]byte{set(3, 0, 3, 0, 0), set(3, 0, 0, 2, 0), set(3, 0, 0, 0, 1), set(3, 1024, 0, 0, 0), set(4000, 0, 0, 0, 0), set(0xFFFFFFFF, 0, 0, 0, 0)} {
		_, err = i.Decode(bad, grid, lengths)
		require.Error(t, err)
	}

	// Whatever the words, an answer is one of an outcome.
	rng := rand.New(rand.NewPCG(1, 2))
	slot := make([]byte, instrument.SlotBytes)
	for range 20_000 {
		for k := 0; k < len(slot); k += 4 {
			binary.LittleEndian.PutUint32(slot[k:], rng.Uint32()>>rng.IntN(33))
		}
		if r, err := i.Decode(slot, grid, lengths[:rng.IntN(4)]); err == nil {
			require.True(t, outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: r.Trap}.Valid())
		}
	}
}

// TestSixteenBindings: a program with all the bindings of the profile gets its trap
// buffer behind them. The verifier has no 17th; Khronos's has.
func TestSixteenBindings(t *testing.T) {
	b := spirvtest.New()
	u := b.Uint(32)
	main := b.Func(b.Void())
	for k := range uint32(program.MaxBindings) {
		a := b.Buffer(k, u, 4)
		b.Store(b.Access(spirv.StorageClassStorageBuffer, u, a, b.U32(0), b.U32(k)), b.U32(1))
	}
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	i, err := instrument.Instrument(admitted(t, b))
	require.NoError(t, err)
	require.Equal(t, uint32(program.MaxBindings), i.Binding)
	require.Empty(t, spirvVal(t, i.Module))
}

// TestAllPushConstants: the entry's number comes behind 128 bytes of the program's.
// All of them may be loaded at once.
func TestAllPushConstants(t *testing.T) {
	b := spirvtest.New()
	u := b.Uint(32)
	words := b.Array(u, b.U32(31), 4)
	block := b.Block([]uint32{0, 124}, words, u)
	push := b.Global(spirv.StorageClassPushConstant, block)
	a := b.Buffer(0, u, 4)
	main := b.Func(b.Void())
	all := b.Load(block, b.Op(spirv.OpCopyObject, b.Pointer(spirv.StorageClassPushConstant, block), push))
	b.Store(b.Access(spirv.StorageClassStorageBuffer, u, a, b.U32(0), b.U32(0)), b.Op(spirv.OpCompositeExtract, u, all, 0, 30))
	b.Store(b.Access(spirv.StorageClassStorageBuffer, u, a, b.U32(0), b.U32(1)), b.Op(spirv.OpCompositeExtract, u, all, 1))
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	p := admitted(t, b)
	i := accepted(t, p)
	require.Equal(t, uint32(128), i.EntryOff)
	got := launch(t, p, program.Dim3{X: 1, Y: 1, Z: 1}, [][]byte{make([]byte, 8)}, counting(32), instrument.NoEntry, 1)
	require.Equal(t, ints(30, 31), got.bindings[0][:8])
}

// inContinue is a loop of 9 rounds with another inside its continue construct, which
// counts to the value of the push constant, in a variable or in an OpPhi, or until the
// value is reached by other steps.
func inContinue(form string) *spirvtest.Builder {
	b := spirvtest.New()
	u := b.Uint(32)
	push := b.Push([]uint32{0}, u)
	out := b.Buffer(0, u, 4)
	main := b.Func(b.Void())
	k, n := b.Local(u), b.Local(u)
	to := b.Access(spirv.StorageClassStorageBuffer, u, out, b.U32(0), b.U32(0))
	count := func() { b.Store(to, b.Op(spirv.OpIAdd, u, b.Load(u, to), b.U32(1))) }
	bound := b.Load(u, b.Access(spirv.StorageClassPushConstant, u, push, b.U32(0)))
	b.Store(k, b.U32(0))
	b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, k), b.U32(9)) },
		func(spirv.ID, spirv.ID) bool { return true },
		func() {
			b.Store(k, b.Op(spirv.OpIAdd, u, b.Load(u, k), b.U32(1)))
			b.Store(n, b.U32(0))
			if form == "phi" {
				before, head, body, cont, merge, i, next := b.ID(), b.ID(), b.ID(), b.ID(), b.ID(), b.ID(), b.ID()
				b.Branch(before)
				b.Begin(before)
				b.Branch(head)
				b.Begin(head)
				b.Do(spirv.OpPhi, u, i, b.U32(0), before, next, cont)
				cond := b.Op(spirv.OpULessThan, b.Bool(), i, bound)
				b.LoopMerge(merge, cont)
				b.BranchIf(cond, body, merge)
				b.Begin(body)
				count()
				b.Branch(cont)
				b.Begin(cont)
				b.Do(spirv.OpIAdd, u, next, i, b.U32(1))
				b.Branch(head)
				b.Begin(merge)
				return
			}

			b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, n), bound) },
				func(spirv.ID, spirv.ID) bool { count(); return true },
				func() {
					step := b.U32(1)
					if form == "other" {
						step = b.Load(u, n)
					}
					b.Store(n, b.Op(spirv.OpIAdd, u, b.Load(u, n), step))
				})
		})
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	return b
}

// TestContinueConstructs: from a continue construct no lane can return. A loop there
// with a known number of rounds does not begin if they are too many; a program with
// any other is refused.
func TestContinueConstructs(t *testing.T) {
	for _, form := range []string{"variable", "phi"} {
		p := admitted(t, inContinue(form))
		grid := program.Dim3{X: 1, Y: 1, Z: 1}
		got := launch(t, p, grid, [][]byte{make([]byte, 4)}, ints(50), instrument.NoEntry, 2000)
		require.Equal(t, instrument.Whole, got.report.End)
		require.Equal(t, ints(450), got.bindings[0][:4])

		got = launch(t, p, grid, [][]byte{make([]byte, 4)}, ints(900), instrument.NoEntry, 2000)
		require.Equal(t, instrument.TooLong, got.report.End)
		require.Equal(t, ints(1800), got.bindings[0][:4], "twice 900 rounds, and not once more")
	}

	_, err := instrument.Instrument(admitted(t, inContinue("other")))
	var r *program.Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, instrument.CodeFlow, r.Code)
	require.Equal(t, "OpLoopMerge", r.Op)
}

// TestNothingOfTheText: names, source text and what compilers add for debuggers do
// not reach the vendor's compiler, nor what would let it depart from the engine.
func TestNothingOfTheText(t *testing.T) {
	b := spirvtest.New()
	u, f := b.Uint(32), b.Float(32)
	a := b.Name(b.Buffer(0, u, 4), "secret")
	b.File("secret.comp")
	main := b.Func(b.Void())
	x := b.Decorate(b.Op(spirv.OpFMul, f, b.F32(2), b.F32(3)), spirv.DecorationRelaxedPrecision)
	y := b.Decorate(b.Op(spirv.OpIAdd, u, b.Op(spirv.OpConvertFToU, u, x), b.Op(spirv.OpUndef, u)), spirv.DecorationNoUnsignedWrap)
	b.Store(b.Access(spirv.StorageClassStorageBuffer, u, a, b.U32(0), b.U32(0)), y)
	b.Return()
	b.End()
	b.Compute(main, "main", 1, 1, 1)
	b.Extension("SPV_KHR_no_integer_wrap_decoration")
	i := accepted(t, admitted(t, b))
	m, err := spirv.Parse(i.Module)
	require.NoError(t, err)
	require.Empty(t, m.Debug)
	require.Empty(t, m.Extensions)
	for k := range m.Annotations {
		if m.Annotations[k].Op != spirv.OpDecorate {
			continue
		}
		d := spirv.Decoration(m.Annotations[k].Args[1])
		require.NotContains(t, []spirv.Decoration{spirv.DecorationRelaxedPrecision, spirv.DecorationNoUnsignedWrap}, d)
	}

	_, exact := m.Decoration(x, spirv.DecorationNoContraction)
	require.True(t, exact, "results without a tolerance are promised bit for bit")
	for _, fn := range m.Functions {
		for _, block := range fn.Blocks {
			for k := range block.Insts {
				require.NotEqual(t, spirv.OpUndef, block.Insts[k].Op)
			}
		}
	}
}
