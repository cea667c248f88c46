package spirv_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// smallest is a module that Parse accepts: one function that returns.
func smallest() *spirvtest.Builder {
	b := spirvtest.New()
	b.Func(b.Void())
	b.Return()
	b.End()
	return b
}

// word changes a word of the smallest module.
func word(at int, v uint32) func() []byte {
	return func() []byte {
		data := smallest().Bytes()
		binary.LittleEndian.PutUint32(data[4*at:], v)
		return data
	}
}

// with is the smallest module and something else.
func with(f func(b *spirvtest.Builder)) func() []byte {
	return func() []byte {
		b := spirvtest.New()
		f(b)
		b.Func(b.Void())
		b.Return()
		b.End()
		return b.Bytes()
	}
}

// inside is a module of one function; f writes and ends its entry block.
func inside(f func(b *spirvtest.Builder)) func() []byte {
	return func() []byte {
		b := spirvtest.New()
		b.Func(b.Void())
		f(b)
		b.End()
		return b.Bytes()
	}
}

var refusals = []struct {
	code, op string
	module   func() []byte
	message  string // part of it
}{
	{"SPV-1020", "", func() []byte { return nil }, "0 bytes are less than a header"},
	{"SPV-1020", "", func() []byte { return append(smallest().Bytes(), 0) }, "not whole words"},
	{"SPV-1020", "", func() []byte { return make([]byte, program.MaxBundleBytes+4) }, "more than"},
	{"SPV-1021", "", word(0, 0x07230204), "first word"},
	{"SPV-1022", "", word(1, 0x00010700), "version"},
	{"SPV-1022", "", word(1, 0x00000900), "version"},
	{"SPV-1022", "", word(1, 0x00010301), "version"},
	{"SPV-1023", "", word(4, 1), "schema"},
	{"SPV-1024", "", word(3, 0), "bound 0"},
	{"SPV-1024", "", word(3, 1<<22), "bound 4194304"},
	{"SPV-1025", "OpCapability", word(5, uint32(spirv.OpCapability)), "0 words"},
	{"SPV-1025", "OpCapability", word(5, 0xff<<16|uint32(spirv.OpCapability)), "255 words"},
	{"SPV-1026", "Op65000", word(5, 2<<16|65000), "unknown opcode 65000"},
	{"SPV-1026", "Op13", word(5, 2<<16|13), "unknown opcode 13"},
	{"SPV-1027", "OpTypeInt", with(func(b *spirvtest.Builder) { b.Declare(spirv.OpTypeInt, b.ID(), 32) }), "LiteralInteger is missing"},
	{"SPV-1027", "OpTypeInt", with(func(b *spirvtest.Builder) { b.Declare(spirv.OpTypeInt) }), "missing"},
	{"SPV-1027", "OpConstant", with(func(b *spirvtest.Builder) { b.Const(b.Uint(64), 1) }), "missing"},
	{"SPV-1027", "OpDecorate", with(func(b *spirvtest.Builder) { b.Decorate(b.ID(), spirv.DecorationBinding) }), "missing"},
	{"SPV-1027", "OpExecutionMode", with(func(b *spirvtest.Builder) { b.Mode(b.ID(), spirv.ExecutionModeLocalSize, 1, 1) }), "missing"},
	{"SPV-1027", "OpPhi", inside(func(b *spirvtest.Builder) { b.Op(spirv.OpPhi, b.Bool(), b.BoolConst(true)); b.Return() }), "missing"},
	{"SPV-1028", "OpTypeVoid", with(func(b *spirvtest.Builder) { b.Declare(spirv.OpTypeVoid, b.ID(), 1) }), "1 words too many"},
	{"SPV-1028", "OpConstant", with(func(b *spirvtest.Builder) { b.Const(b.Uint(32), 1, 2) }), "1 words too many"},
	{"SPV-1028", "OpDecorate", with(func(b *spirvtest.Builder) { b.Decorate(b.ID(), spirv.DecorationBlock, 1) }), "1 words too many"},
	{"SPV-1029", "OpName", with(func(b *spirvtest.Builder) { b.Name(0, "nothing") }), "id 0"},
	{"SPV-1029", "OpName", with(func(b *spirvtest.Builder) { b.Name(99, "nothing") }), "id 99"},
	{"SPV-1029", "OpTypeVoid", with(func(b *spirvtest.Builder) { b.Declare(spirv.OpTypeVoid, 0) }), "id 0"},
	{"SPV-1030", "OpTypeVoid", with(func(b *spirvtest.Builder) { b.Declare(spirv.OpTypeVoid, b.Void()) }), "defined before"},
	{"SPV-1030", "OpLabel", inside(func(b *spirvtest.Builder) { b.Return(); b.Begin(b.Void()) }), "defined before"},
	{"SPV-1030", "OpUndef", inside(func(b *spirvtest.Builder) {
		next := b.ID()
		b.Branch(next)
		b.Begin(next)
		b.Do(spirv.OpUndef, b.Bool(), next)
	}), "defined before"},
	{"SPV-1031", "OpExtension", func() []byte {
		data := with(func(b *spirvtest.Builder) { b.Extension("four") })()
		binary.LittleEndian.PutUint32(data[4*9:], 0x20202020) // the word that ends it
		return data
	}, "does not end"},
	{"SPV-1032", "OpExtension", with(func(b *spirvtest.Builder) { b.Extension("\xff") }), "UTF-8"},
	{"SPV-1033", "OpLoad", inside(func(b *spirvtest.Builder) {
		b.Op(spirv.OpLoad, b.Bool(), b.Local(b.Bool()), 0x40000000)
		b.Return()
	}), "is no MemoryAccess"},
	{"SPV-1034", "OpConstant", with(func(b *spirvtest.Builder) { b.Const(b.Bool(), 1) }), "is not a number type"},
	{"SPV-1034", "OpConstant", with(func(b *spirvtest.Builder) { b.Const(b.Uint(24), 1) }), "is not a number type"},
	{"SPV-1034", "OpConstant", with(func(b *spirvtest.Builder) { b.Const(b.ID(), 1) }), "is not a number type"},
	{"SPV-1034", "OpSwitch", inside(func(b *spirvtest.Builder) { b.Do(spirv.OpSwitch, b.BoolConst(true), b.ID(), 1, b.ID()) }), "is not a number type"},
	{"SPV-1035", "OpSpecConstantOp", with(func(b *spirvtest.Builder) { b.SpecOp(b.Bool(), 60000) }), "opcode 60000"},
	{"SPV-1035", "OpSpecConstantOp", with(func(b *spirvtest.Builder) { b.SpecOp(b.Bool(), spirv.OpSpecConstantOp) }), "opcode 52"},
	{"SPV-1035", "OpSpecConstantOp", with(func(b *spirvtest.Builder) { b.SpecOp(b.Bool(), spirv.OpReturn) }), "opcode 253"},
	{"SPV-1036", "OpExtInst", inside(func(b *spirvtest.Builder) {
		b.Op(spirv.OpExtInst, b.Float(32), b.Float(32), spirv.GLSLSqrt, b.F32(1))
	}), "no imported set"},
	{"SPV-1036", "OpExtInst", inside(func(b *spirvtest.Builder) { b.Ext(2, b.Float(32)) }), "RoundEven takes 1 operands, not 0"},
	{"SPV-1036", "OpExtInst", inside(func(b *spirvtest.Builder) { b.Ext(999, b.Float(32)) }), "no instruction 999"},
	{"SPV-1036", "OpExtInst", inside(func(b *spirvtest.Builder) { b.Ext(spirv.GLSLFma, b.Float(32), b.F32(1)) }), "Fma takes 3 operands, not 1"},
	{"SPV-1037", "OpLine", inside(func(b *spirvtest.Builder) { b.Line(b.Void(), 1, 1) }), "not an OpString"},
	{"SPV-1040", "OpName", with(func(b *spirvtest.Builder) {
		b.Annotate(spirv.OpDecorate, b.Void(), 0)
		b.Annotate(spirv.OpName, b.Void(), "late")
	}), "belongs to names"},
	{"SPV-1040", "OpTypeBool", func() []byte { b := smallest(); b.Do(spirv.OpTypeBool, b.ID()); return b.Bytes() }, "after functions began"},
	{"SPV-1041", "OpMemoryModel", func() []byte { return spirvtest.Bare().Bytes() }, "there is none"},
	{"SPV-1041", "OpMemoryModel", func() []byte {
		b := spirvtest.Bare()
		b.Model(0, 1)
		data := b.Bytes()
		return append(data, data[20:]...)
	}, "a second"},
	{"SPV-1042", "OpReturn", func() []byte { b := smallest(); b.Return(); return b.Bytes() }, "outside of a block"},
	{"SPV-1042", "OpLabel", func() []byte { b := smallest(); b.Begin(b.ID()); return b.Bytes() }, "outside of a function"},
	{"SPV-1042", "OpTypeBool", inside(func(b *spirvtest.Builder) { b.Do(spirv.OpTypeBool, b.ID()) }), "inside of a function"},
	{"SPV-1042", "OpFunctionParameter", inside(func(b *spirvtest.Builder) { b.Return(); b.Op(spirv.OpFunctionParameter, b.Bool()) }), "after a block"},
	{"SPV-1042", "OpExtInst", with(func(b *spirvtest.Builder) {
		b.Declare(spirv.OpExtInst, b.Float(32), b.ID(), b.GLSL(), spirv.GLSLSqrt, b.F32(1))
	}), "outside of a block"},
	{"SPV-1043", "OpGroupDecorate", with(func(b *spirvtest.Builder) { b.Annotate(spirv.OpGroupDecorate, b.Void()) }), "no decoration group"},
	{"SPV-1043", "OpGroupMemberDecorate", with(func(b *spirvtest.Builder) {
		b.Annotate(spirv.OpDecorationGroup, b.ID())
		b.Annotate(spirv.OpGroupMemberDecorate, b.Void())
	}), "no decoration group"},
	{"SPV-1043", "OpGroupDecorate", with(func(b *spirvtest.Builder) {
		g := b.ID()
		for range 100 {
			b.Decorate(g, spirv.DecorationRestrict)
		}
		b.Annotate(spirv.OpDecorationGroup, g)
		targets := []any{g}
		for range 100 {
			targets = append(targets, b.Void())
		}
		b.Annotate(spirv.OpGroupDecorate, targets...)
	}), "twice as large"},
	{"SPV-1044", "OpFunctionEnd", with(func(b *spirvtest.Builder) { b.FuncHead(b.Void()); b.End() }), "no body"},
	{"SPV-1045", "OpReturn", func() []byte { data := smallest().Bytes(); return data[:len(data)-4] }, "ends inside"},
	{"SPV-1045", "OpFunction", inside(func(b *spirvtest.Builder) {
		b.Return()
		b.Do(spirv.OpFunction, b.Void(), b.ID(), 0, b.FuncType(b.Void()))
	}), "has not ended"},
	{"SPV-1046", "OpFunctionEnd", inside(func(b *spirvtest.Builder) {}), "has not ended"},
	{"SPV-1046", "OpLabel", inside(func(b *spirvtest.Builder) { b.Begin(b.ID()) }), "has not ended"},
	{"SPV-1047", "OpReturn", inside(func(b *spirvtest.Builder) { b.SelectionMerge(b.ID()); b.Return() }), "after an OpSelectionMerge"},
	{"SPV-1047", "OpUndef", inside(func(b *spirvtest.Builder) { b.SelectionMerge(b.ID()); b.Op(spirv.OpUndef, b.Bool()) }), "after an OpSelectionMerge"},
	{"SPV-1047", "OpBranch", inside(func(b *spirvtest.Builder) { b.SelectionMerge(b.ID()); b.Branch(b.ID()) }), "after an OpSelectionMerge"},
	{"SPV-1047", "OpSwitch", inside(func(b *spirvtest.Builder) {
		b.LoopMerge(b.ID(), b.ID())
		b.Do(spirv.OpSwitch, b.U32(1), b.ID())
	}), "after an OpLoopMerge"},
	{"SPV-1048", "OpPhi", inside(func(b *spirvtest.Builder) { b.Op(spirv.OpUndef, b.Bool()); b.Op(spirv.OpPhi, b.Bool()) }), "after other instructions"},
	{"SPV-1048", "OpVariable", inside(func(b *spirvtest.Builder) {
		b.Op(spirv.OpUndef, b.Bool())
		b.Op(spirv.OpVariable, b.Pointer(spirv.StorageClassFunction, b.Bool()), spirv.StorageClassFunction)
	}), "not at the start"},
	{"SPV-1049", "OpBranch", inside(func(b *spirvtest.Builder) { b.Branch(b.ID()) }), "not a label of function"},
	{"SPV-1049", "OpBranch", inside(func(b *spirvtest.Builder) { b.Branch(b.Void()) }), "not a label of function"},
	{"SPV-1049", "OpLoopMerge", inside(func(b *spirvtest.Builder) {
		next := b.ID()
		b.LoopMerge(next, b.ID())
		b.Branch(next)
		b.Begin(next)
		b.Return()
	}), "not a label of function"},
	{"SPV-1049", "OpBranch", func() []byte { // a label of another function
		b := spirvtest.New()
		other := b.ID()
		b.FuncHead(b.Void())
		b.Begin(other)
		b.Return()
		b.End()
		b.Func(b.Void())
		b.Branch(other)
		b.End()
		return b.Bytes()
	}, "not a label of function"},
	{"SPV-1050", "OpDecorate", with(func(b *spirvtest.Builder) {
		b.Decorate(b.Decorate(b.Void(), spirv.DecorationBinding, 1), spirv.DecorationBinding, 2)
	}), "as Binding says otherwise"},
	{"SPV-1051", "OpMemberName", with(func(b *spirvtest.Builder) { b.MemberName(b.Void(), 70000, "x") }), "member 70000"},
	{"SPV-1051", "OpMemberDecorate", with(func(b *spirvtest.Builder) { b.MemberDecorate(b.Void(), 70000, spirv.DecorationOffset, 0) }), "member 70000"},
}

func TestRefusals(t *testing.T) {
	_, err := spirv.Parse(smallest().Bytes())
	require.NoError(t, err)
	tried := map[string]bool{}
	for _, test := range refusals {
		t.Run(test.code+" "+test.op, func(t *testing.T) {
			data := test.module()
			m, err := spirv.Parse(data)
			require.Nil(t, m)
			var refusal *program.Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, test.code, refusal.Code, refusal)
			require.Equal(t, test.op, refusal.Op, refusal)
			require.Contains(t, refusal.Message, test.message)
			require.NotContains(t, refusal.Message, "%!", "a format without its operands")
			if test.op != "" && refusal.Off < uint32(len(data)) && !strings.Contains(refusal.Message, "there is none") {
				op := binary.LittleEndian.Uint32(data[refusal.Off:])
				require.Equal(t, test.op, spirv.Opcode(op).String(), "the offset is of another instruction")
			}
		})
		tried[test.code] = true
	}

	for _, c := range spirv.Codes {
		require.True(t, tried[c.Code], "no test refuses with %s", c.Code)
		require.NotEmpty(t, c.Meaning)
	}

	require.Len(t, spirv.Codes, len(tried))
}

func TestRefusalNamesTheLine(t *testing.T) {
	b := spirvtest.New()
	file := b.File("/home/someone/src/reduce.comp")
	b.Func(b.Void())
	b.Line(file, 12, 1)
	b.Ext(999, b.Float(32))
	b.End()
	_, err := spirv.Parse(b.Bytes())
	require.ErrorContains(t, err, "SPV-1036 OpExtInst at byte ")
	require.ErrorContains(t, err, "(reduce.comp:12): GLSL.std.450 has no instruction 999")
}
