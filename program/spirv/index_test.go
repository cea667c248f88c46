package spirv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

func TestNames(t *testing.T) {
	b := spirvtest.New()
	plain := b.Name(b.Void(), "void")
	b.Name(plain, "second")
	empty := b.Name(b.Bool(), "")
	hostile := b.Name(b.Uint(32), "\x1b[2J\nred")
	long := b.Name(b.Int(32), strings.Repeat("ü", 1000))
	nameless := b.Float(32)
	pair := b.Struct(plain, plain)
	b.MemberName(pair, 1, "second")
	m, err := spirv.Parse(b.Bytes())
	require.NoError(t, err)

	require.Equal(t, "void", m.Name(plain))
	require.Equal(t, "%2", m.Name(empty))
	require.Equal(t, "?[2J?red", m.Name(hostile))
	require.Equal(t, strings.Repeat("ü", 128)+"…", m.Name(long))
	require.Equal(t, "%5", m.Name(nameless))
	require.Equal(t, "%99", m.Name(99))
	require.Equal(t, "%0", m.Name(0))
	require.Equal(t, "second", m.MemberName(pair, 1))
	for _, i := range []int{0, 2, -1, 1 << 40} {
		require.NotEqual(t, "second", m.MemberName(pair, i))
	}

	require.Equal(t, "0", m.MemberName(pair, 0))
	require.Equal(t, "0", m.MemberName(99, 0))
	require.Nil(t, m.Def(0))
	require.Nil(t, m.Def(1<<31))
	require.Empty(t, m.Source(spirv.Line{}))
	require.Empty(t, m.Source(spirv.Line{File: plain, Line: 3}))
}

func TestDecorations(t *testing.T) {
	b := spirvtest.New()
	s := b.Struct(b.Void(), b.Void())
	b.MemberDecorate(s, 1, spirv.DecorationOffset, 16)
	b.Decorate(s, spirv.DecorationBlock)
	b.MemberDecorate(s, 0, spirv.DecorationOffset, 4)
	b.Decorate(b.Void(), spirv.DecorationBinding, 7)
	b.Decorate(b.Void(), spirv.DecorationBinding, 7) // as some compilers do
	b.Annotate(spirv.OpDecorateId, b.Bool(), spirv.DecorationUniformId, b.Void())
	m, err := spirv.Parse(b.Bytes())
	require.NoError(t, err)

	in, ok := m.MemberDecoration(s, 1, spirv.DecorationOffset)
	require.True(t, ok)
	require.Equal(t, []uint32{uint32(s), 1, uint32(spirv.DecorationOffset), 16}, in.Args)
	in, ok = m.MemberDecoration(s, 0, spirv.DecorationOffset)
	require.True(t, ok)
	require.Equal(t, uint32(4), in.Args[3])
	in, ok = m.Decoration(b.Void(), spirv.DecorationBinding)
	require.True(t, ok)
	require.Equal(t, uint32(7), in.Args[2])
	_, ok = m.Decoration(b.Bool(), spirv.DecorationUniformId)
	require.True(t, ok)
	_, ok = m.Decoration(s, spirv.DecorationBlock)
	require.True(t, ok)

	for _, member := range []int{-1, 2, 0xffff, 0x10001, 1 << 40} {
		_, ok = m.MemberDecoration(s, member, spirv.DecorationOffset)
		require.False(t, ok, member)
	}

	_, ok = m.Decoration(s, spirv.DecorationOffset)
	require.False(t, ok)
	_, ok = m.Decoration(s, spirv.DecorationBlock+0x10000)
	require.False(t, ok)
	_, ok = m.Decoration(99, spirv.DecorationBlock)
	require.False(t, ok)
}

func TestSwitchCases(t *testing.T) {
	for _, test := range []struct {
		bits   int
		signed bool
		args   []any
		want   []uint64
		text   string
	}{
		{8, true, []any{uint32(0xffffffff), uint32(7)}, []uint64{0xff, 7}, "-1"},
		{16, false, []any{uint32(0xffff), uint32(7)}, []uint64{0xffff, 7}, "65535"},
		{32, true, []any{uint32(0x80000000), uint32(7)}, []uint64{0x80000000, 7}, "-2147483648"},
		{64, false, []any{[]uint32{1, 2}, []uint32{3, 0}}, []uint64{1 | 2<<32, 3}, "8589934593"},
	} {
		b := spirvtest.New()
		typ := b.Uint(test.bits)
		if test.signed {
			typ = b.Int(test.bits)
		}

		merge, first := b.ID(), b.ID()
		b.Func(b.Void(), typ)
		b.SelectionMerge(merge)
		b.Do(spirv.OpSwitch, b.Param(0), merge, test.args[0], first, test.args[1], merge)
		b.Begin(first)
		b.Branch(merge)
		b.Begin(merge)
		b.Return()
		b.End()
		m, err := spirv.Parse(b.Bytes())
		require.NoError(t, err)
		entry := m.Functions[0].Blocks[0]
		require.Equal(t, test.want, entry.Cases)
		require.Equal(t, []spirv.ID{merge, first, merge}, entry.Targets)
		require.Equal(t, spirv.OpSelectionMerge, entry.Merge.Op)
		require.Empty(t, entry.Insts)
		require.Contains(t, disassemble(t, b.Bytes(), nil), fmt.Sprintf(" %%%d %s %%%d %d %%%d\n", merge, test.text, first, test.want[1], merge))
	}
}

// glslang -g writes bytes of a source beyond ASCII as 0xff.
func TestSourcesNeedNotBeUTF8(t *testing.T) {
	b := spirvtest.New()
	file := b.File("caf\xff.comp")
	b.Func(b.Void())
	b.Line(file, 1, 0)
	b.Return()
	b.End()
	m, err := spirv.Parse(b.Bytes())
	require.NoError(t, err)
	require.Equal(t, "caf\ufffd.comp:1", m.Source(m.Functions[0].Blocks[0].Term.Line))
	require.Contains(t, disassemble(t, b.Bytes(), nil), `OpString "caf\xff.comp"`)
}

func TestLinesReachToTheEndOfTheBlock(t *testing.T) {
	b := spirvtest.New()
	file := b.File("a.comp")
	next := b.ID()
	b.Func(b.Void())
	b.Line(file, 1, 2)
	b.Op(spirv.OpUndef, b.Bool())
	b.Do(spirv.OpNoLine)
	b.Op(spirv.OpUndef, b.Bool())
	b.Line(file, 3, 4)
	b.Branch(next)
	b.Begin(next)
	b.Return()
	b.End()
	m, err := spirv.Parse(b.Bytes())
	require.NoError(t, err)
	blocks := m.Functions[0].Blocks
	require.Len(t, blocks[0].Insts, 2)
	require.Equal(t, spirv.Line{File: file, Line: 1, Col: 2}, blocks[0].Insts[0].Line)
	require.Zero(t, blocks[0].Insts[1].Line)
	require.Equal(t, uint32(3), blocks[0].Term.Line.Line)
	require.Zero(t, blocks[1].Term.Line)
}

// Lines come from OpLine, or from NonSemantic.Shader.DebugInfo.100.
func TestCompiledModulesNameLines(t *testing.T) {
	for _, name := range []string{"reduce", "debuginfo"} {
		m, err := spirv.Parse(modules(t)[name])
		require.NoError(t, err)
		f := m.Functions[0]
		found := map[spirv.Opcode]string{}
		for _, b := range f.Blocks {
			for i := range b.Insts {
				found[b.Insts[i].Op] = m.Source(b.Insts[i].Line)
			}
		}
		require.Equal(t, "reduce.comp:17", found[spirv.OpAtomicIAdd], name)
		require.Equal(t, "reduce.comp:12", found[spirv.OpControlBarrier], name)
	}
}

func TestConstantsInText(t *testing.T) {
	b := spirvtest.New()
	for _, bits := range []uint32{0, 0x3f800000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 1} {
		b.Const(b.Float(32), bits)
	}

	for _, bits := range []uint32{0x3c00, 1, 0x7c00, 0xfe00, 0xfbff} {
		b.Const(b.Float(16), bits)
	}

	b.F64(0.1)
	b.I64(-1)
	b.U64(1 << 63)
	b.Const(b.Int(8), uint32(0xffffff80))
	b.Const(b.Uint(16), 0xffff)
	text := disassemble(t, b.Bytes(), nil)
	for _, want := range []string{
		"%float_0 = OpConstant %float 0", "%float_1 = OpConstant %float 1", "%float_n0 = OpConstant %float -0",
		"%float_0x1p_128 = OpConstant %float 0x1p+128", "OpConstant %float -0x1p+128",
		"OpConstant %float 0x1.8p+128", "OpConstant %float 0x1.000002p+128", "OpConstant %float 1e-45",
		"OpConstant %half 1", "OpConstant %half 5.9604645e-08", "OpConstant %half 0x1p+16",
		"OpConstant %half -0x1.8p+16", "OpConstant %half -65504",
		"OpConstant %double 0.1", "OpConstant %long -1", "OpConstant %ulong 9223372036854775808",
		"OpConstant %char -128", "OpConstant %ushort 65535",
	} {
		require.Contains(t, text, want+"\n")
	}

	again, err := spirv.Parse(tool(t, []byte(text), "spirv-as", "--target-env", "spv1.3"))
	require.NoError(t, err)
	m, err := spirv.Parse(b.Bytes())
	require.NoError(t, err)
	for i := range m.Globals {
		if m.Globals[i].Op == spirv.OpConstant {
			require.Equal(t, m.Globals[i].Args, again.Globals[i].Args, "spirv-as reads another number")
		}
	}
}
