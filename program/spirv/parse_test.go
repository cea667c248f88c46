package spirv_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/program"
	"capgpu/program/spirv"
)

// modules are the compiled shaders in testdata, by name.
func modules(t testing.TB) map[string][]byte {
	paths, err := filepath.Glob("testdata/*.spv")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	list := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		list[strings.TrimSuffix(filepath.Base(path), ".spv")] = data
	}
	return list
}

func TestParse(t *testing.T) {
	for name, data := range modules(t) {
		t.Run(name, func(t *testing.T) {
			m, err := spirv.Parse(data)
			require.NoError(t, err)
			require.Equal(t, uint32(0x10300), m.Version)
			require.Len(t, m.EntryPoints, 1)
			require.NotEmpty(t, m.Functions)
			for _, f := range m.Functions {
				require.Same(t, &f.Def, m.Def(f.ID()))
				require.NotEmpty(t, f.Blocks)
				for _, b := range f.Blocks {
					require.True(t, spirv.Terminator(b.Term.Op))
					for i := range b.Insts {
						require.False(t, spirv.Terminator(b.Insts[i].Op))
						if r := b.Insts[i].Result; r != 0 {
							require.Same(t, &b.Insts[i], m.Def(r))
						}
					}
				}
			}
		})
	}
}

func TestParseEitherByteOrder(t *testing.T) {
	for name, data := range modules(t) {
		swapped := make([]byte, len(data))
		for i := 0; i < len(data); i += 4 {
			binary.BigEndian.PutUint32(swapped[i:], binary.LittleEndian.Uint32(data[i:]))
		}
		a, err := spirv.Parse(data)
		require.NoError(t, err)
		b, err := spirv.Parse(swapped)
		require.NoError(t, err, name)
		require.Equal(t, a.Words, b.Words)
		require.Equal(t, a.Functions, b.Functions)
	}
}

func TestRefusalIsAProgramError(t *testing.T) {
	_, err := spirv.Parse([]byte("not SPIR-V at all, is it?..."))
	var refusal *program.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, "SPV-1021", refusal.Code)
	var e *gpuerr.Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, gpuerr.Program, e.Code)
}

func BenchmarkParse(b *testing.B) {
	data := modules(b)["kitchen"]
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := spirv.Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}
