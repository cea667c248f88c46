package instrument_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane/lanetest"
	"capgpu/program/library"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// holds instruments whatever is admitted: the result is admitted again, or there is
// a refusal with the code of this package.
func holds(t *testing.T, data []byte) (admitted, refused bool) {
	p, err := verify.Admit(data, verify.DefaultLimits())
	if err != nil {
		return false, false
	}

	i, err := instrument.Instrument(p)
	if err != nil {
		var r *program.Refusal
		require.ErrorAs(t, err, &r)
		require.Equal(t, instrument.CodeFlow, r.Code)
		return true, true
	}
	if i.Binding < program.MaxBindings && len(i.Module) < program.MaxBundleBytes-program.MaxManifestBytes {
		again(t, p, i)
	}
	return true, false
}

// compilers are the modules of compilers that the verifier's tests keep, of each form
// of the profile.
func compilers(t testing.TB) (modules [][]byte) {
	files, err := filepath.Glob("../verify/testdata/*.spv")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		modules = append(modules, data)
	}
	return modules
}

// TestMutants: mutants of real modules, of which the verifier admits some.
func TestMutants(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	modules := compilers(t)
	for _, name := range library.Names() {
		data, _ := library.Bundle(name)
		b, err := program.Parse(data)
		require.NoError(t, err)
		modules = append(modules, b.SPIRV)
	}
	for seed := range uint64(20) {
		modules = append(modules, lanetest.Random(lanetest.NewTape(seed)).Module)
	}

	n, refused := 0, 0
	for k := range 2500 {
		yes, not := holds(t, spirvtest.Mutate(rng, modules[k%len(modules)]))
		n += number(yes)
		refused += number(not)
	}
	require.Greater(t, n, 100)
	t.Logf("%d mutants admitted, %d of them refused here", n, refused)
}

// FuzzInstrument: any bytes.
func FuzzInstrument(f *testing.F) {
	for _, name := range []string{"copy", "reduce_f32", "trap", "spin", "embed_q4_0", "histogram_u32"} {
		data, _ := library.Bundle(name)
		b, err := program.Parse(data)
		require.NoError(f, err)
		f.Add(b.SPIRV)
	}
	for seed := range uint64(6) {
		f.Add(lanetest.Random(lanetest.NewTape(seed)).Module)
	}
	for _, data := range compilers(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { holds(t, data) })
}
