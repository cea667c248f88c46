package spirv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The generated grammar meets the parser's assumptions.
func TestGrammarFitsTheParser(t *testing.T) {
	list := func(operands []Operand) {
		for i, o := range operands {
			require.NotEmpty(t, o.Kind.info().name)
			if o.Variadic {
				require.Equal(t, len(operands)-1, i, "something comes after a variadic operand")
			}
			if i > 0 && operands[i-1].Optional {
				require.True(t, o.Optional || o.Variadic, "an operand that must be there comes after an optional one")
			}
		}
	}

	for op, info := range opInfos {
		if info == nil {
			continue
		}

		list(info.Operands)
		for i, o := range info.Operands {
			result := o.Kind == KindIdResultType || o.Kind == KindIdResult
			require.Equal(t, i < int(info.results), result, Opcode(op))
			if o.Kind == KindPairLiteralIntegerIdRef {
				require.Equal(t, OpSwitch, Opcode(op))
			}
			if o.Kind == KindLiteralContextDependentNumber {
				require.Equal(t, sectionGlobals, info.section, info.Name)
				require.True(t, info.hasType)
			}
		}

		if Terminator(Opcode(op)) {
			require.False(t, info.hasResult)
			require.Equal(t, sectionBody, info.section)
		}
	}

	for k := range kindInfos {
		values := kindInfos[k].values
		for i, e := range values {
			if i > 0 {
				require.Less(t, values[i-1].value, e.value)
			}
			list(e.params)
			for _, p := range e.params { // operands nest once only
				for _, inner := range p.Kind.info().values {
					require.Empty(t, inner.params)
				}
			}
			require.Same(t, &values[i], kindInfos[k].find(e.value))
		}
		require.Nil(t, kindInfos[k].find(0xfffffff0))
	}

	for _, e := range KindDecoration.info().values {
		require.Less(t, e.value, uint32(0x10000), "index keys have 16 bits for a decoration")
	}

	for _, info := range glslInfos {
		if info == nil {
			continue
		}
		for _, o := range info.Operands {
			require.Equal(t, Operand{Kind: KindIdRef}, o)
		}
	}
}

func TestText(t *testing.T) {
	require.Equal(t, "OpFAdd", OpFAdd.String())
	require.Equal(t, "Op65535", Opcode(65535).String())
	require.Equal(t, "FClamp", GLSLFClamp.String())
	require.Equal(t, "GLSL4294967295", GLSL(1<<32-1).String())
	require.Equal(t, "StorageBuffer", StorageClassStorageBuffer.String())
	require.Equal(t, "StorageClass(99)", StorageClass(99).String())
	require.Equal(t, "Volatile|Aligned|0x40000000", MemoryAccess(3|1<<30).String())
	require.Equal(t, "None", MemoryAccess(0).String())
	require.Equal(t, "IdRef", KindIdRef.String())
	require.Equal(t, "Kind255", OperandKind(255).String())
	text, n := Text([]uint32{0x64636261, 0x65, 7})
	require.Equal(t, "abcde", text)
	require.Equal(t, 2, n)
	text, n = Text([]uint32{0x64636261})
	require.Equal(t, "abcd", text)
	require.Equal(t, 1, n)
}
